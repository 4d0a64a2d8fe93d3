import os
import signal
import subprocess
import sys
import time

import polars as pl
import pytest
import yaml

from nvtrader_pipelines.runs.run_comparison import compare_named_runs
from nvtrader_pipelines.runs.run_deletion import delete_run, plan_deletion
from nvtrader_pipelines.runs.run_document import run_document
from nvtrader_pipelines.runs.run_queries import find_run_by_name, list_runs, require_trained_run
from nvtrader_pipelines.runs.world_documents import list_worlds, world_document
from nvtrader_pipelines.storage.errors import NameTakenError, NotFoundError, StorageError
from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.specs import write_experiment
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.tables import REWARD_DECOMPOSITION, TRAINING_CURVES, TRAJECTORIES, WORLD_RESULTS
from nvtrader_pipelines.storage.world_files import read_world, read_worlds
from tests.homes import NVTRADER, copy_home, environment
from tests.runs.small_runs import EXPERIMENT, market_home
from tests.runs.small_worlds import CLOSED, SALE, TRADE, run_steps, write_worlds

pytestmark = pytest.mark.slow


def policies(home):
    """Policies of the order by file."""
    return {path.name: path.read_bytes() for path in home.policies.glob("sale@*/**/*.zip")}


@pytest.fixture(scope="module")
def sold(tmp_path_factory):
    """Home with a finished run of an order."""
    store = Store(Home(tmp_path_factory.mktemp("sold") / "home"))
    store.home.landing.mkdir(parents=True)
    write_worlds(store.home, sale=SALE, closed=CLOSED)
    run_steps(store, "sale")
    return store


def test_run_of_a_world_is_in_the_ledger_and_the_tables(sold):
    document = world_document(sold, "sale")
    run_id = document.run.run_id
    assert (document.run.kind, document.run.status, document.run.seeds) == ("world", "done", (0, 1, 2))
    assert [row.seed for row in document.results] == [None, 0, 1, 2]
    assert document.results[0].reference == "almgren_chriss"
    steps = sold.tables.read(TRAJECTORIES, {"run_id": [run_id]})
    totals = steps.group_by("policy").agg(pl.col("reward").sum() / 1000)
    means = {f"sale/seed-{row.seed}": row.mean for row in document.results[1:]}
    assert dict(totals.iter_rows()) == pytest.approx({**means, "almgren_chriss": document.results[0].reference_mean})
    terms = sold.tables.read(REWARD_DECOMPOSITION, {"run_id": [run_id]})
    assert terms["contribution"].sum() == pytest.approx(steps["reward"].sum())
    assert set(sold.tables.read(TRAINING_CURVES, {"run_id": [run_id]})["seed"]) == {0, 1, 2}
    assert sold.ledger.policies(run_id)["file"].to_list() == sorted(policies(sold.home))


def test_worlds_are_no_experiments(sold):
    assert sold.ledger.versions().is_empty()
    assert sold.ledger.runs().is_empty()
    assert set(sold.ledger.versions(with_worlds=True)["kind"]) == {"world"}
    assert set(list_runs(sold)["kind"]) == {"world"}
    run_steps(sold, "closed")
    for refused in (lambda: require_trained_run(sold, "sale"), lambda: compare_named_runs(sold, ["sale", "closed"])):
        with pytest.raises(StorageError, match="worlds show"):
            refused()


def test_document_of_the_run_has_its_results(sold):
    document = run_document(sold, find_run_by_name(sold.ledger, "sale"))
    assert document.world_results == world_document(sold, "sale").results
    assert (document.figures, document.spec["world"]["kind"]) == ((), "tradesim_execution")


def test_list_has_results_states_and_problems(sold):
    (sold.home.worlds / "bad.yaml").write_text("name: bad")
    (sold.home.worlds / "twin.yaml").write_text(yaml.safe_dump(CLOSED))
    rows = {row["name"]: row["status"] for row in list_worlds(sold).iter_rows(named=True)}
    problems = read_worlds(sold.home).problems
    for name in ("bad", "twin"):
        (sold.home.worlds / f"{name}.yaml").unlink()
    assert rows == {"sale": "done", **dict.fromkeys(("bad.yaml", "closed.yaml", "twin.yaml"), "not valid")}
    assert problems.keys() == {"bad.yaml", "closed.yaml", "twin.yaml"}
    with pytest.raises(NotFoundError):
        read_world(sold.home, "none")


def test_finished_run_is_tested_again_and_trains_nothing(sold):
    before = world_document(sold, "sale").results
    assert [step.stage for step in run_steps(sold, "sale")] == ["start", "done"]
    assert world_document(sold, "sale").results == before


def test_closed_form_equals_its_reference(sold):
    run_steps(sold, "closed")
    row = world_document(sold, "closed").results[0]
    assert (row.difference, row.mean) == (0.0, row.reference_mean)


def test_name_of_an_experiment_is_refused_for_a_world(store):
    store.ledger.register(EXPERIMENT)
    write_worlds(store.home, small={**CLOSED, "name": EXPERIMENT.name})
    with pytest.raises(NameTakenError):
        run_steps(store, "small")


def test_name_of_a_file_of_an_experiment_is_refused_for_a_world(store):
    write_experiment(store.home, "later")
    write_worlds(store.home, later={**CLOSED, "name": "later"})
    with pytest.raises(NameTakenError):
        run_steps(store, "later")
    assert store.ledger.versions(with_worlds=True).is_empty()


def test_interrupted_run_continues_to_equal_bytes(sold, store):
    write_worlds(store.home, sale=SALE)
    stages = []
    while "train.checkpoint" not in stages:
        stages += [step.stage for step in run_steps(store, "sale", len(stages) + 2)]
    document = world_document(store, "sale")
    assert (document.run.status, "interrupted" in document.verdict) == ("interrupted", True)
    assert run_steps(store, "sale")[-1].stage == "done"
    assert policies(store.home) == policies(sold.home)
    columns = [name for name in WORLD_RESULTS.schema if name != "run_id"]
    results = [each.tables.read(WORLD_RESULTS).filter(experiment="sale").select(columns) for each in (store, sold)]
    assert results[0].sort("seed").equals(results[1].sort("seed"))


def test_changed_policy_file_is_trained_again(sold, tmp_path):
    store = Store(copy_home(sold.home, tmp_path / "copy"))
    path = next(store.home.policies.rglob("fold-0-seed-1.zip"))
    path.write_bytes(path.read_bytes()[:-1])
    run_steps(store, "sale")
    assert policies(store.home) == policies(sold.home)


def test_asset_is_traded_on_test_days_only(tmp_path):
    store = market_home(tmp_path / "home")
    sessions = store.panels.read(EXPERIMENT.market).sessions
    days = [str(sessions[t]) for t in (10, 120, 121, 220)]
    write_worlds(store.home, trade={**TRADE, "train": days[:2], "test": days[2:]})
    run_steps(store, "trade")
    document = world_document(store, "trade")
    steps = store.tables.read(TRAJECTORIES)
    assert (str(steps["session"].min()), len(steps)) == (days[2], 4 * 99)
    assert (str(document.run.window_first), str(document.run.window_last)) == (days[2], days[3])
    assert document.results[0].n_episodes == 1
    assert document.run.snapshot_ids


def test_deleted_run_leaves_its_row(store):
    write_worlds(store.home, closed=CLOSED)
    run_steps(store, "closed")
    row = world_document(store, "closed").run
    delete_run(store, plan_deletion(store, row, ()), lambda _: None)
    assert store.tables.read(WORLD_RESULTS).is_empty()
    assert store.tables.read(TRAJECTORIES).is_empty()
    assert store.ledger.run(row.run_id).deleted_at is not None
    assert run_steps(store, "closed")[-1].stage == "done"


@pytest.mark.nightly
def test_killed_run_continues_to_equal_bytes(sold, store):
    write_worlds(store.home, sale={**SALE, "agent": {**SALE["agent"], "total_timesteps": 20_480}})
    write_experiment(store.home, "unused")
    command = [NVTRADER, "worlds", "run", "sale"]
    with subprocess.Popen(command, env=environment(store.home), start_new_session=True, stderr=sys.stderr) as process:
        while not [*store.home.policies.rglob("*.checkpoint")]:
            time.sleep(0.05)
        os.killpg(process.pid, signal.SIGKILL)
    assert len(policies(store.home)) < 3
    assert run_steps(store, "sale")[-1].stage == "done"
    whole = Store(Home(store.home.root.with_name("whole")))
    write_worlds(whole.home, sale={**SALE, "agent": {**SALE["agent"], "total_timesteps": 20_480}})
    run_steps(whole, "sale")
    assert policies(store.home) == policies(whole.home)
