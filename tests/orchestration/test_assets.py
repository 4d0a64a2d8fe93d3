"""The whole graph in this process, on a home that another process has trained."""

import base64
import datetime as dt
import shutil
from dataclasses import replace
from pathlib import Path

import dagster as dg
import polars as pl
import pytest
from polars.testing import assert_frame_equal

from nvtrader_pipelines.evaluation.step_generators import drain
from nvtrader_pipelines.orchestration.assets import trajectories
from nvtrader_pipelines.orchestration.definitions import build_defs
from nvtrader_pipelines.orchestration.jobs import PREFERENCE_ASSETS
from nvtrader_pipelines.orchestration.partitions import RANGE_END, RANGE_START
from nvtrader_pipelines.runs.lifecycle import Launch
from nvtrader_pipelines.runs.planning import read_plan
from nvtrader_pipelines.runs.stored_run import RunWriter
from nvtrader_pipelines.runs.train_walk_judge import walk_run
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.tables import BARS, EVALUATIONS, RUNS
from tests.homes import (
    KEY,
    SPEC,
    check_outcomes,
    materialized_assets,
    register_experiments,
    run_job,
    run_market,
    small_home,
    step_errors,
    table_contents,
)

WALKED = [dg.AssetKey(["rl", table.table]) for table in trajectories.DESCRIPTIONS]
EVENING = {  # of the job rebalance, which needs a policy that trades: tests of the portfolio run it
    f"portfolio/{name}" for name in ("orders", "portfolio_state", "target_weights", "rebalance_plan")
}
JUDGED = [dg.AssetKey(["evaluation", "walk_forward_evaluation"]), dg.AssetKey(["preferences", "preference_pairs"])]


@pytest.fixture(scope="module")
def own_home(built_home, tmp_path_factory, instance):
    """A home that tests may write; the policies come from the shared one."""
    home = small_home(tmp_path_factory.mktemp("own") / "home")
    shutil.copytree(built_home.policies, home.policies)
    register_experiments(home, instance)
    return home


@pytest.fixture(scope="module")
def first_state(own_home, instance):
    """Results of the first runs, the experiment's ledger row, its pictures and all tables."""
    market = run_market(own_home, instance)
    experiment = run_job(own_home, "experiment", instance, partition_key=KEY)
    answers = [asset.key for asset in PREFERENCE_ASSETS if asset.partitions_def is None]
    runs = [market, experiment, run_job(own_home, "judgement", instance), run_job(own_home, "promotion", instance)]
    runs.append(run_job(own_home, "preferences", instance, asset_selection=answers))
    runs.append(run_job(own_home, "dpo_check", instance, partition_key=KEY))
    kept = {path: path.read_bytes() for path in own_home.pictures.rglob("*.png")}
    ledger = Store(own_home).ledger
    return runs, ledger.run(ledger.runs()["run_id"][0]), kept, table_contents(own_home)


@pytest.fixture(scope="module")
def first_runs(first_state):
    return first_state[0]


@pytest.fixture(scope="module")
def record(own_home, first_runs):
    """What the walk through the test windows gives."""
    store = Store(own_home)
    return drain(walk_run(store, read_plan(store, KEY), Launch("test")))


def metadata(runs: list[dg.ExecuteInProcessResult], asset: str):
    events = [event for run in runs for event in run.get_asset_materialization_events()]
    return next(e.materialization.metadata for e in events if e.asset_key == dg.AssetKey.from_user_string(asset))


def walk(home, instance) -> dg.ExecuteInProcessResult:
    """The trajectories again, and what follows them."""
    return run_job(home, "experiment", instance, partition_key=KEY, asset_selection=[*WALKED, *JUDGED])


def with_record(monkeypatch, changed) -> None:
    keep = RunWriter.store_record
    monkeypatch.setattr(RunWriter, "store_record", lambda store, _: keep(store, changed))


def test_every_asset_materializes_and_passes_its_checks(first_runs, own_home):
    assert [step_errors(run) for run in first_runs] == [""] * 6
    specs = build_defs(home=own_home).resolve_all_asset_specs()
    expected = {spec.key.to_user_string() for spec in specs if spec.group_name not in {"research", "worlds"}} - EVENING
    assert set().union(*(materialized_assets(run) for run in first_runs)) == expected
    passed = {name: verdict for run in first_runs for name, verdict in check_outcomes(run).items()}
    graph = build_defs(home=own_home).resolve_asset_graph()
    keys = {key for key in graph.asset_check_keys if key.asset_key.to_user_string() not in EVENING}
    assert set(passed) == {f"{key.asset_key.to_user_string()}:{key.name}" for key in keys}
    assert {name for name, verdict in passed.items() if not verdict} == {
        "evaluation/validation:candidate_is_more_than_luck",
        "evaluation/overfitting:choice_is_not_overfitted",  # nothing to choose from: there is one trial
    }


def test_policy_that_cannot_be_tuned_says_why(first_runs):
    verdict = metadata(first_runs, "policies/dpo_policy")
    assert not verdict["tuned"].value
    assert "held out to report on" in verdict["verdict"].value


def test_promotion_checks_warn_with_figures(first_runs):
    found = {each.check_name: each for run in first_runs for each in run.get_asset_check_evaluations()}
    luck, choice = found["candidate_is_more_than_luck"], found["choice_is_not_overfitted"]
    for check in (luck, choice):
        assert check.severity is dg.AssetCheckSeverity.WARN
        assert check.description.startswith("landing, ")
        assert "best_baseline" in check.metadata["figures"].value
    assert "the best ranked of 1 trial, has an information ratio of" in luck.description
    assert "the probability of overfitting against their best baselines is unknown" in choice.description


def test_table_reports_rows_size_and_snapshot_as_data_version(first_runs):
    events = [event for run in first_runs for event in run.get_asset_materialization_events()]
    tables = [event.materialization for event in events if event.asset_key.path[0] != "policies"]
    for materialization in tables:
        found = materialization.metadata
        empty = {"quarantine", "active_policy", "decisions", "outcomes"}  # the gate says no, so nothing trades
        may_be_empty = materialization.asset_key.path[-1] in empty
        assert found["dagster/row_count"].value >= found["dagster/partition_row_count"].value > 0 or may_be_empty
        assert found["size_bytes"].value > 0 or may_be_empty
        assert materialization.tags["dagster/data_version"] == found["iceberg_snapshot_id"].value


@pytest.mark.parametrize(
    ("asset", "name"),
    [
        ("policies/trained_policy", "learning_curve"),
        ("rl/equity_curves", "equity"),
        ("rl/action_logs", "weights"),
        ("rl/reward_decomposition", "terms"),
        ("evaluation/sharpe_ratio_curve", "ratio_curve"),
        ("gold/regimes", "landing"),
        ("evaluation/regime_evaluation", "regimes"),
        ("preferences/outcomes", "agreement"),
    ],
)
def test_plots_are_stored_as_files_and_metadata(first_state, asset, name):
    first_runs, _, kept, _ = first_state
    text = metadata(first_runs, asset)[name].value
    start = "![plot](data:image/png;base64,"
    assert text.startswith(start)
    png = base64.b64decode(text.removeprefix(start).removesuffix(")"))
    whole = kept[Path(metadata(first_runs, asset)["pictures"].value) / f"{name}.png"]
    assert png[:6] == whole[:6] == b"\x89PNG\r\n"


def test_trained_policy_links_its_mlflow_run_and_versions_its_digest(first_runs, own_home):
    found = metadata(first_runs, "policies/trained_policy")
    runs = Store(own_home).tables.read(RUNS)
    assert found["mlflow_run_id"].value == runs["mlflow_run_id"][0]
    assert found["mlflow_path"].value.endswith(found["mlflow_run_id"].value)
    assert found["sha256"].value == Store(own_home).policies.read_latest(KEY).sha256


def test_trained_policy_names_its_run_version_and_market_snapshots(first_runs, own_home):
    found, version = (metadata(first_runs, f"policies/{name}") for name in ("trained_policy", "experiment_version"))
    assert found["run_id"].value == Store(own_home).policies.read_latest(KEY).run_id
    assert found["spec_hash"].value == version["spec_hash"].value == SPEC.spec_hash
    tables = {name: metadata(first_runs, name.replace(".", "/")) for name in found["snapshots"].value}
    assert set(tables) == {"bronze.bars", "silver.clean_bars", "gold.returns", "gold.features"}
    snapshots = {name: str(snapshot) for name, snapshot in found["snapshots"].value.items()}
    assert snapshots == {name: table["iceberg_snapshot_id"].value for name, table in tables.items()}


def test_run_is_done_in_the_ledger_with_figures_and_launcher(first_state, own_home):
    ledger, run = Store(own_home).ledger, Store(own_home).policies.read_latest(KEY)
    first_runs, row, *_ = first_state
    assert (row.status, row.kind, row.dagster_run_id) == ("done", "walk_forward", first_runs[1].run_id)
    assert row.mlflow_run_id == metadata(first_runs, "policies/trained_policy")["mlflow_run_id"].value
    own = Store(own_home).tables.read(EVALUATIONS).filter(pl.col("policy") == "tiny", pl.col("period") == "all")
    assert row.metrics["all/sharpe"] == own["sharpe"][0]
    assert dict(ledger.policies(run.run_id).select("file", "sha256").iter_rows()) == run.policies
    assert {"start", "data.loaded", "evaluate.step", "done"} <= set(ledger.events(run.run_id)["stage"])


def require_equal(mine, theirs) -> None:
    for name, frame in theirs.items():
        # The intervals' matrix products differ in the last digit with the number of BLAS threads.
        assert_frame_equal(mine[name], frame, check_exact=not name.startswith("evaluation."), rel_tol=1e-9)


def test_materialization_in_another_process_and_home_is_equal(first_state, built_home):
    require_equal(first_state[-1], table_contents(built_home))


@pytest.mark.nightly
def test_current_year_alone_materializes_without_other_years(first_runs, own_home, instance):
    before = Store(own_home).tables.read(BARS)
    finished = run_job(own_home, "market", instance, partition_key="2017")
    assert finished.success, step_errors(finished)
    assert_frame_equal(Store(own_home).tables.read(BARS), before, check_row_order=False)
    assert run_market(own_home, instance).success


def test_range_of_one_experiment_is_the_run_of_its_partition(first_runs, own_home, instance):
    tags = {RANGE_START: KEY, RANGE_END: KEY}
    pairs = [dg.AssetKey(["preferences", "preference_pairs"])]
    finished = run_job(own_home, "experiment", instance, tags=tags, asset_selection=pairs)
    assert finished.success, step_errors(finished)


def test_weights_off_the_simplex_block_the_verdict(own_home, instance, record, monkeypatch):
    doubled = record.action_logs.with_columns(pl.col("target_weights").list.eval(pl.element() * 2.0))
    terms = record.reward_decomposition.with_columns(pl.col("contribution") + 1e-6)
    with_record(monkeypatch, replace(record, action_logs=doubled, reward_decomposition=terms))
    finished = walk(own_home, instance)
    assert not finished.success
    verdicts = check_outcomes(finished)
    assert not verdicts["rl/action_logs:weights_sum_to_one"]
    assert not verdicts["rl/reward_decomposition:terms_sum_to_reward"]
    assert "evaluation/walk_forward_evaluation" not in materialized_assets(finished)


def test_equity_other_than_product_of_growth_blocks_the_verdict(own_home, instance, record, monkeypatch):
    curves = record.equity_curves.with_columns(equity=pl.col("equity") * 1.0001)
    with_record(monkeypatch, replace(record, equity_curves=curves))
    finished = walk(own_home, instance)
    assert not check_outcomes(finished)["rl/equity_curves:equity_is_product_of_growth"]
    assert "evaluation/walk_forward_evaluation" not in materialized_assets(finished)
    assert "preferences/preference_pairs" in materialized_assets(finished)


def test_policy_trained_on_its_test_sessions_blocks_the_verdict(own_home, instance, record, monkeypatch):
    curves = record.equity_curves.with_columns(pl.col("session") - dt.timedelta(days=14))
    with_record(monkeypatch, replace(record, equity_curves=curves))
    finished = walk(own_home, instance)
    verdicts = check_outcomes(finished)
    assert not verdicts["rl/equity_curves:no_training_in_test"]
    assert verdicts["rl/equity_curves:equity_is_product_of_growth"]
    assert "evaluation/walk_forward_evaluation" not in materialized_assets(finished)


def test_changed_policy_file_fails_its_check_and_is_not_used(own_home, first_runs, instance, monkeypatch):
    library = Store(own_home).policies
    run = library.read_latest(KEY)
    path = library.folder(KEY, run.run_id) / "fold-1-seed-1.zip"
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    try:
        check = dg.AssetCheckKey(dg.AssetKey(["policies", "trained_policy"]), "policy_digest")
        job = dg.define_asset_job("digest", dg.AssetSelection.checks(check))
        defs = dg.Definitions.merge(build_defs(home=own_home), dg.Definitions(jobs=[job]))
        asked = defs.resolve_job_def("digest").execute_in_process(instance=instance, raise_on_error=False)
        assert check_outcomes(asked) == {"policies/trained_policy:policy_digest": False}
        walked = walk(own_home, instance)
        assert not walked.success
        assert materialized_assets(walked) == set()
        assert Store(own_home).ledger.run(run.run_id).status == "failed"
        assert "missing or were changed after sealing" in Store(own_home).ledger.run(run.run_id).message
    finally:
        path.write_bytes(content)


@pytest.mark.nightly
def test_changed_policy_is_retrained_to_the_same_bytes(own_home, first_runs, built_home, instance):
    library = Store(own_home).policies
    path = library.folder(KEY, library.read_latest(KEY).run_id) / "fold-0-seed-2.zip"
    content = path.read_bytes()
    path.write_bytes(content[:100])
    finished = run_job(own_home, "experiment", instance, partition_key=KEY)
    assert finished.success, step_errors(finished)
    assert path.read_bytes() == content
    require_equal(table_contents(own_home), table_contents(built_home))
