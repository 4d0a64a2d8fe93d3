"""What a job says of itself when it runs alone."""

import dagster as dg

from nvtrader_pipelines.orchestration.definitions import build_defs
from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.tables import EQUITY_CURVES
from nvtrader_pipelines.storage.warehouse import Warehouse
from tests.storage.frames import keyed, of_run


def test_upkeep_says_of_each_table_what_went_and_sums_it_up_in_the_metadata(tmp_path):
    home = Home(tmp_path / "home")
    for fold in (1, 2):
        rows = keyed(EQUITY_CURVES, "run", fold=fold)
        Warehouse(home).replace(EQUITY_CURVES, rows, {**of_run("run"), "fold": [fold]})
    with dg.instance_for_test() as instance:
        done = build_defs(home=home).resolve_job_def("upkeep").execute_in_process(instance=instance)
        (output,) = (event for event in done.all_events if event.is_successful_output)
        said = [record.user_message for record in instance.all_logs(done.run_id)]
    found = {name: entry.value for name, entry in output.step_output_data.metadata.items()}
    assert found == {"n_merged": 2, "n_made": 1, "n_snapshots": 0, "n_files": 0, "n_bytes": 0}
    assert any(line.startswith("rl.equity_curves: 2 small files merged into 1") for line in said)
    assert Warehouse(home).describe(EQUITY_CURVES).n_files == 1
