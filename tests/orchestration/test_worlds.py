from datetime import UTC, datetime

import pytest

from nvtrader_pipelines.orchestration.definitions import build_defs
from nvtrader_pipelines.orchestration.progress_log import ProgressLog
from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.kill_switch import FileKillSwitch, Halt
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.tables import WORLD_RESULTS
from tests.homes import copy_home, run_job
from tests.runs.small_worlds import CLOSED, SALE, write_worlds

DAYS = {"train": ["2015-01-02", "2016-12-30"], "test": ["2017-01-03", "2017-12-29"]}
UNPRICED = {
    "name": "unpriced",
    "market": {"source": "landing"},
    **DAYS,
    "world": {"kind": "tradesim_algotrading", "symbol": "JPM"},
    "agent": {"kind": "deepscalper"},
}
INVALID = {**CLOSED, "name": "invalid", "agent": {"kind": "nobody"}}


def run_worlds(home, instance, *names, watch=None):
    ops = {"evaluation__world_results": {"config": {"worlds": list(names)}}} if names else None
    return run_job(home, "world", instance, {"progress": ProgressLog(watch)}, ops)


def runs_of(home):
    return Store(home).ledger.runs(with_worlds=True)


@pytest.fixture(scope="module")
def ran(instance, tmp_path_factory):
    """Home in which the job has run all experiments, and the run; read it, never write it."""
    home = Home(tmp_path_factory.mktemp("worlds") / "home")
    write_worlds(home, closed=CLOSED, sale=SALE, unpriced=UNPRICED, invalid=INVALID)
    return home, run_worlds(home, instance)


@pytest.mark.slow
def test_job_runs_valid_experiments_and_warns_of_the_others(ran):
    home, done = ran
    (event,) = done.get_asset_materialization_events()
    metadata, results = event.materialization.metadata, Store(home).tables.read(WORLD_RESULTS)
    assert set(metadata["warnings"].value) == {"invalid.yaml", "unpriced"}
    assert metadata["differences"].value.startswith("![plot]")
    drawn = {"differences", "closed-rewards", "sale-rewards"}
    assert {path.stem for path in (home.pictures / "world_results").iterdir()} == drawn
    assert drawn < set(metadata)
    assert metadata["dagster/partition_row_count"].value == len(results) == 2 + 4  # one and three seeds, and the means
    assert results.filter(experiment="closed")["difference"].to_list() == [0.0, 0.0]
    assert runs_of(home).select("dagster_run_id", "status").rows() == [(done.run_id, "done")] * 2


@pytest.mark.slow
def test_finished_experiment_runs_again_only_if_named_or_changed(ran, instance, tmp_path):
    home = copy_home(ran[0], tmp_path / "home")
    assert run_worlds(home, instance, "closed").success
    write_worlds(home, closed={**CLOSED, "world": {**CLOSED["world"], "n_steps": 6}})
    assert run_worlds(home, instance).success
    assert runs_of(home)["attempts"].to_list() == [1, 2, 1]  # the changed one, the named one, the other


@pytest.mark.slow
@pytest.mark.parametrize("name", ["unpriced", "invalid", "nobody"])
def test_named_experiment_that_cannot_run_fails_the_job(ran, instance, name):
    assert not run_worlds(ran[0], instance, name).success


@pytest.mark.slow
def test_halt_interrupts_the_run_and_begins_no_other(instance, tmp_path):
    home = Home(tmp_path / "home")
    write_worlds(home, closed=CLOSED, sale=SALE)
    halt = Halt(by="ann", reason="a drill", at=datetime.now(UTC))
    assert not run_worlds(home, instance, watch=lambda _: FileKillSwitch(home).write(halt)).success
    assert runs_of(home)["status"].to_list() == ["interrupted"]


@pytest.mark.slow
def test_job_without_experiments_draws_that_there_are_none(instance, tmp_path):
    home = Home(tmp_path / "home")
    assert run_worlds(home, instance).success
    assert (home.pictures / "world_results" / "differences.png").exists()


def test_only_one_job_runs_worlds(tmp_path):
    defs = build_defs(home=Home(tmp_path))
    layers = {job.name: defs.resolve_job_def(job.name).asset_layer for job in defs.jobs or []}
    tables = {name: {key.path[-1] for key in layer.executable_asset_keys} for name, layer in layers.items()}
    assert [name for name, keys in tables.items() if "world_results" in keys] == ["world"]
