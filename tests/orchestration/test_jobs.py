"""What a job says of itself when it runs alone."""

import dagster as dg
import pytest

from nvtrader_pipelines.orchestration.assets.preferences import DPO_POLICY_KEY
from nvtrader_pipelines.orchestration.definitions import build_defs
from nvtrader_pipelines.orchestration.partitions import EXPERIMENTS
from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.tables import EQUITY_CURVES
from tests.storage.table_rows import run_keys, run_rows


def test_experiment_job_has_the_partitioned_assets_judgement_the_rest(tmp_path):
    defs = build_defs(home=Home(tmp_path))
    specs = {spec.key: spec for spec in defs.resolve_all_asset_specs()}
    experiment, judgement = (
        set(defs.resolve_job_def(job).asset_layer.executable_asset_keys) for job in ("experiment", "judgement")
    )
    assert experiment == {key for key, spec in specs.items() if spec.partitions_def == EXPERIMENTS} - {DPO_POLICY_KEY}
    assert judgement == {key for key, spec in specs.items() if spec.group_name == "evaluation"} - experiment
    assert all(specs[key].partitions_def is None for key in judgement)
    assert {key.path[-1] for key in judgement} >= {"validation", "sharpe_ratio_curve", "scorecards", "scoreboard"}
    assert {key.path[-1] for key in experiment} >= {"walk_forward_evaluation", "regime_evaluation", "stress"}


@pytest.mark.parametrize("job", ["experiment", "autoresearch", "world", "judgement", "promotion", "rebalance"])
def test_jobs_from_a_search_to_its_orders_survive_several_kills(job, tmp_path):
    assert build_defs(home=Home(tmp_path)).resolve_job_def(job).run_tags["dagster/max_retries"] == "5"


@pytest.mark.slow
def test_upkeep_logs_each_table_and_reports_totals(tmp_path):
    home = Home(tmp_path / "home")
    for fold in (1, 2):
        rows = run_rows(EQUITY_CURVES, "run", fold=fold)
        Store(home).tables.replace(EQUITY_CURVES, rows, {**run_keys("run"), "fold": [fold]})
    with dg.instance_for_test() as instance:
        done = build_defs(home=home).resolve_job_def("upkeep").execute_in_process(instance=instance)
        (output,) = (event for event in done.all_events if event.is_successful_output)
        said = [record.user_message for record in instance.all_logs(done.run_id)]
    found = {name: entry.value for name, entry in output.step_output_data.metadata.items()}
    assert found == {"n_merged": 2, "n_written": 1, "n_snapshots": 0, "n_files": 0, "n_bytes": 0}
    assert any(line.startswith("rl.equity_curves: 2 small files merged into 1") for line in said)
    assert Store(home).tables.describe(EQUITY_CURVES).n_files == 1
