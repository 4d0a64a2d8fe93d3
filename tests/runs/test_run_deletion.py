import datetime as dt

import numpy as np
import polars as pl
import pytest

from nvtrader_pipelines.evaluation.trials import Period, trials_of
from nvtrader_pipelines.runs.run_deletion import delete_run, plan_deletion
from nvtrader_pipelines.runs.run_tables import complete_run, walk_forward_runs
from nvtrader_pipelines.scoreboard.trial_history import trial_curves, trial_runs
from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.tables import ACTION_LOGS, EQUITY_CURVES, EVALUATIONS, RUNS, STRESS
from tests.homes import copy_home
from tests.runs.test_run_tables import run_named
from tests.storage.ledger.run_rows import SPEC, run_row
from tests.storage.table_rows import AT, run_rows

pytestmark = pytest.mark.slow
TRIALS = ("first", "second", "third")
N_SESSIONS = 40
DAYS = [dt.date(2020, 1, 1) + dt.timedelta(days=i) for i in range(N_SESSIONS)]


def curves(run_id, kind, generator):
    rows = run_rows(EQUITY_CURVES, run_id, n_rows=N_SESSIONS, kind=kind, policy=kind)
    returns = generator.normal(0.001, 0.01, N_SESSIONS)
    return rows.with_columns(session=pl.Series(DAYS), net_return=returns, spec_hash=pl.lit(SPEC.spec_hash))


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    """A home with three completed runs, and a replay of the second."""
    store = Store(Home(tmp_path_factory.mktemp("stored") / "home"))
    store.home.landing.mkdir(parents=True)
    generator, ledger = np.random.default_rng(0), store.ledger
    rows = [curves(run_id, kind, generator) for run_id in TRIALS for kind in ("ensemble", "policy", "baseline")]
    store.tables.replace(EQUITY_CURVES, pl.concat(rows), {})
    for table in (ACTION_LOGS, STRESS, EVALUATIONS):
        rows = pl.concat([run_rows(table, run_id) for run_id in TRIALS])
        store.tables.replace(table, rows.with_columns(spec_hash=pl.lit(SPEC.spec_hash)), {})
    for run_id in TRIALS:
        ledger.begin(run_row(ledger, run_id=run_id))
        ledger.finish(run_id, "done")
        complete_run(store, run_named(run_id), AT)
        folder = store.policies.folder(SPEC.partition_key, run_id)
        folder.mkdir(parents=True)
        (folder / "fold-0-seed-0.zip").write_bytes(b"policy")
    ledger.begin(run_row(ledger, run_id="replay", kind="replay", parent_run_id="second"))
    ledger.finish("replay", "failed")
    return store.home


@pytest.fixture
def trials(stored, tmp_path):
    return Store(copy_home(stored, tmp_path / "home"))


def plan(store, run_id, active_run_ids=()):
    return plan_deletion(store, store.ledger.run(run_id), active_run_ids)


def delete(store, run_id, delete_tracked=lambda _: None) -> None:
    delete_run(store, plan(store, run_id), delete_tracked)


def count(store, table, run_id) -> int:
    return store.tables.read(table).filter(pl.col("run_id") == run_id).height


def deflation(store):
    runs = trial_runs(store)
    found = trials_of(runs, trial_curves(store, runs), Period("all", DAYS[0], DAYS[-1]), 252)
    return found.n_trials, [found.deflation(trial, "best_baseline") for trial in found.known]


def test_plan_deletion_counts_what_goes_of_a_trial(trials):
    found = plan(trials, "first")
    assert (found.n_files, found.n_bytes, found.is_trial) == (1, 6, True)
    assert found.rows == {"rl.equity_curves": N_SESSIONS, "rl.action_logs": 3, "evaluation.stress": 3}


def test_deleted_trial_still_counts_in_the_deflation(trials):
    before, tracked = deflation(trials), ["first", "second"]
    assert before[0] == 3
    delete(trials, "first", tracked.remove)
    assert tracked == ["second"]
    assert deflation(trials) == before
    assert trials.ledger.deleted_ids() == ["first"]
    assert sorted(walk_forward_runs(trials)["run_id"]) == ["second", "third"]
    assert "first" not in trials.ledger.runs()["run_id"]
    assert count(trials, EQUITY_CURVES, "first") == 2 * N_SESSIONS
    assert [count(trials, table, "first") for table in (ACTION_LOGS, STRESS, EVALUATIONS, RUNS)] == [0, 0, 3, 1]
    assert count(trials, ACTION_LOGS, "third") == 3
    assert not trials.policies.folder(SPEC.partition_key, "first").exists()


def test_deletion_killed_in_between_is_finished_by_a_repeat(trials, monkeypatch):
    before = deflation(trials)
    with monkeypatch.context() as patch:
        patch.setattr(type(trials.policies), "delete", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            delete(trials, "first")
    assert trials.ledger.deleted_ids() == ["first"]
    at = trials.ledger.run("first").deleted_at
    delete(trials, "first")
    assert trials.ledger.run("first").deleted_at == at
    assert not trials.policies.folder(SPEC.partition_key, "first").exists()
    assert deflation(trials) == before


def test_plan_of_a_repeated_deletion_is_empty(trials):
    assert not plan(trials, "first").is_empty
    delete(trials, "first")
    assert plan(trials, "first").is_empty


def test_deleted_replay_leaves_no_rows(trials):
    trials.tables.replace(
        ACTION_LOGS,
        run_rows(ACTION_LOGS, "replay").with_columns(spec_hash=pl.lit(SPEC.spec_hash)),
        {"run_id": ["replay"]},
    )
    delete(trials, "replay")
    assert count(trials, ACTION_LOGS, "replay") == 0
    assert trials.ledger.deleted_ids() == ["replay"]


def test_run_with_replays_running_or_active_is_not_deleted(trials):
    with pytest.raises(StorageError):
        plan(trials, "second")
    trials.ledger.begin(run_row(trials.ledger, run_id="third"))
    with pytest.raises(StorageError):
        plan(trials, "third")
    with pytest.raises(StorageError):
        plan(trials, "first", active_run_ids=["first"])
    assert trials.ledger.deleted_ids() == []


def test_run_that_begins_again_is_not_deleted_any_more(trials):
    delete(trials, "first")
    trials.ledger.begin(run_row(trials.ledger, run_id="first"))
    assert trials.ledger.deleted_ids() == []
