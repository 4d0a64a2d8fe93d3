from datetime import UTC, datetime

import pytest
import yaml

from nvtrader_pipelines.orchestration.definitions import build_defs
from nvtrader_pipelines.orchestration.progress_log import ProgressLog
from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.kill_switch import FileKillSwitch, Halt
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.tables import WORLD_RESULTS
from tests.homes import copy_home, run_job

WORLD = {"kind": "tradesim_execution"}
WORLDS = {
    "closed": {"world": WORLD, "agent": {"kind": "almgren_chriss"}},
    "learned": {"world": WORLD, "agent": {"kind": "eteo", "total_timesteps": 1280}},
    "unknown": {"world": WORLD, "agent": {"kind": "nobody"}},
    "unpriced": {
        "world": {"kind": "tradesim_algotrading", "symbol": "JPM"},
        "agent": {"kind": "deepscalper"},
        "market": {"source": "landing"},
        "train": ["2015-01-02", "2016-12-30"],
        "test": ["2017-01-03", "2017-12-29"],
    },
}


def home_of(root, *names):
    home = Home(root)
    home.worlds.mkdir(parents=True)
    for name in names:
        (home.worlds / f"{name}.yaml").write_text(yaml.safe_dump({"name": name, **WORLDS[name]}))
    return home


def run_world_job(home, instance, *worlds, watch=None):
    ops = {"evaluation__world_results": {"config": {"worlds": list(worlds)}}} if worlds else None
    return run_job(home, "world", instance, {"progress": ProgressLog(watch)}, ops)


def attempts(home):
    runs = Store(home).ledger.runs(with_worlds=True)
    return {key.partition("@")[0]: n for key, n in runs["partition_key", "attempts"].rows()}


@pytest.fixture(scope="module")
def ran(instance, tmp_path_factory):
    """Home in which the job has run all experiments, and the run; read it, never write it."""
    home = home_of(tmp_path_factory.mktemp("worlds") / "home", *WORLDS)
    return home, run_world_job(home, instance)


@pytest.mark.slow
def test_job_runs_valid_experiments_and_warns_of_the_others(ran):
    home, done = ran
    (event,) = done.get_asset_materialization_events()
    metadata = event.materialization.metadata
    assert set(metadata["warnings"].value) == {"unknown.yaml", "unpriced"}
    assert metadata["differences"].value.startswith("![plot]")
    assert {path.name for path in (home.pictures / "world_results").iterdir()} == {"differences.png", "differences.svg"}
    results = Store(home).tables.read(WORLD_RESULTS)
    assert metadata["dagster/partition_row_count"].value == len(results) == 2 + 4  # one and three seeds, and the means
    assert results.filter(experiment="closed")["difference"].to_list() == [0.0, 0.0]
    runs = Store(home).ledger.runs(with_worlds=True)
    assert runs["dagster_run_id"].to_list() == [done.run_id] * 2
    assert attempts(home) == {"closed": 1, "learned": 1}


@pytest.mark.slow
def test_finished_experiment_runs_again_only_if_named_or_changed(ran, instance, tmp_path):
    home = copy_home(ran[0], tmp_path / "home")
    assert run_world_job(home, instance).success
    assert attempts(home) == {"closed": 1, "learned": 1}
    assert run_world_job(home, instance, "closed").success
    assert attempts(home) == {"closed": 2, "learned": 1}
    longer = {"name": "closed", **WORLDS["closed"], "world": {**WORLD, "n_steps": 6}}
    (home.worlds / "closed.yaml").write_text(yaml.safe_dump(longer))
    assert run_world_job(home, instance).success
    assert sorted(Store(home).ledger.runs(with_worlds=True)["attempts"]) == [1, 1, 2]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["unpriced", "unknown", "nobody"])
def test_name_that_cannot_run_fails(ran, instance, name):
    assert not run_world_job(ran[0], instance, name).success


@pytest.mark.slow
def test_halt_interrupts_the_run_and_begins_no_other(instance, tmp_path):
    home = home_of(tmp_path / "home", "closed", "learned")
    halt = Halt(by="ann", reason="a drill", at=datetime.now(UTC))
    done = run_world_job(home, instance, watch=lambda _: FileKillSwitch(home).write(halt))
    assert not done.success
    runs = Store(home).ledger.runs(with_worlds=True)
    assert runs["status"].to_list() == ["interrupted"]


def test_job_without_experiments_draws_that_there_are_none(instance, tmp_path):
    home = Home(tmp_path / "home")
    assert run_world_job(home, instance).success
    assert (home.pictures / "world_results" / "differences.png").exists()


def test_only_the_job_of_worlds_holds_their_asset(tmp_path):
    defs = build_defs(home=Home(tmp_path))
    holding = [
        job.name
        for job in defs.jobs or []
        if any(
            key.path[-1] == "world_results" for key in defs.resolve_job_def(job.name).asset_layer.executable_asset_keys
        )
    ]
    assert holding == ["world"]
