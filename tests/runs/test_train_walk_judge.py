import datetime as dt
import itertools
import os
import signal
import subprocess
import sys
import time

import numpy as np
import polars as pl
import pytest

from nvtrader_pipelines.experiments.runtime import training_curves
from nvtrader_pipelines.policies.archive import PolicyArchiveError, read_archive
from nvtrader_pipelines.runs.interruptions import RunHalted
from nvtrader_pipelines.runs.lifecycle import Launch, now
from nvtrader_pipelines.runs.planning import read_plan
from nvtrader_pipelines.runs.run_tables import JUDGEMENT_STARTS
from nvtrader_pipelines.runs.train_walk_judge import (
    adopt_policies,
    forward_run,
    judge_run,
    replay_run,
    replay_window,
    train_run,
    walk_run,
)
from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.kill_switch import FileKillSwitch, Halt
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.tables import EQUITY_CURVES, RUNS, TRAJECTORIES
from nvtrader_pipelines.storage.training_curve_file import read_points
from tests.homes import copy_home
from tests.runs.small_runs import EXPERIMENT, KEY, N_SESSIONS, land, rows_of, run_whole, small_home
from tests.runs.untrained import market_home, planned, sealed

pytestmark = pytest.mark.slow

ME = Launch("task")
N_KILLS = 6  # all while it trains: between policies, rollouts and checkpoints


def started(home, *tasks, **options) -> subprocess.Popen:
    """The experiment of a home, run by a process of its own; without a task, by its forks."""
    command = [sys.executable, "-c", "from tests.runs.small_runs import main; main()", str(home.root), *tasks]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, **options)


def ended(process) -> str:
    output, _ = process.communicate(timeout=240)
    assert process.returncode == 0
    return output


@pytest.fixture(scope="module")
def finished_store(tmp_path_factory):
    """Read-only home whose experiment another process has run to the end."""
    store = small_home(tmp_path_factory.mktemp("finished") / "home")
    assert ended(started(store.home, "task")).splitlines()[-1] == "done"
    return store


@pytest.fixture(scope="module")
def run(finished_store):
    return finished_store.policies.read_latest(KEY)


def files(store, run) -> dict[str, bytes]:
    folder = store.policies.folder(KEY, run.run_id)
    return {path.name: path.read_bytes() for path in folder.glob("[!.]*")}


def require_equal(found, wanted) -> None:
    for name, rows in wanted.items():
        assert len(rows), name
        assert found[name].equals(rows), name


@pytest.mark.slow
def test_finished_run_is_in_library_tables_and_ledger(finished_store, run):
    ledger = finished_store.ledger
    row = ledger.run(run.run_id)
    assert (row.status, row.kind, row.partition_key, row.attempts) == ("done", "walk_forward", KEY, 1)
    rows = rows_of(finished_store, run.run_id)
    own = rows["evaluation.walk_forward_evaluation"].filter(pl.col("policy") == "small", pl.col("period") == "all")
    assert row.metrics["all/sharpe"] == own["sharpe"][0]
    assert rows["rl.runs"].select("kind", "policies_sha256").rows() == [("walk_forward", run.sha256)]
    assert set(rows["rl.trajectories"]["phase"]) == {"train", "test"}
    events = ledger.events(run.run_id)
    assert events["stage"].to_list()[:4] == ["start", "data.loaded", "env.built", "agent.built"]
    starts = [message.partition(": ")[2] for message in events.filter(stage="start")["message"]]
    assert [text.partition(" o")[0] for text in starts] == ["training", "test", JUDGEMENT_STARTS]
    assert events["stage"][-1] == "done"
    curves = training_curves(finished_store.policies.read_run(run)).select("fold", "seed", "timesteps", "mean_reward")
    points = [
        (each.fold, each.seed, each.timesteps, each.mean_reward)
        for each in read_points(finished_store.home, run.run_id)
    ]
    assert sorted(points) == sorted(curves.iter_rows())


def kill_after(forks, task, n_lines, seconds) -> None:
    """Ask for a fork and kill it, not its workers, some time after it has written so many lines."""
    forks.stdin.write(f"{task}\n")
    forks.stdin.flush()
    fork = int(forks.stdout.readline())
    for _ in itertools.islice(forks.stdout, n_lines):
        pass
    time.sleep(seconds)
    os.kill(fork, signal.SIGKILL)
    code = next(line for line in forks.stdout if line.strip("-\n").isdigit())
    assert int(code) == -signal.SIGKILL


def require_consistent(store, run, wanted) -> None:
    """What a killed run has left is whole, and none of it counts as a run that is done."""
    library, ledger = store.policies, store.ledger
    with pytest.raises(StorageError):
        library.read_latest(KEY)
    kept = {name: content for name, content in files(store, run).items() if name.endswith(".zip")}
    for name, content in kept.items():
        assert content == wanted[name]
    rows = rows_of(store, run.run_id)
    assert rows["rl.runs"].is_empty()
    for content in kept.values():
        card, _ = read_archive(content)
        own = (pl.col("fold") == card.fold) & (pl.col("seed") == card.seed)
        sampled = store.tables.read(TRAJECTORIES).filter(own).drop("run_id", "spec_hash")
        assert sampled.select("episode", "step").is_duplicated().sum() == 0
    assert ledger.run(run.run_id).status == "running"
    ledger.close_interrupted()
    assert ledger.run(run.run_id).status == "interrupted"


@pytest.mark.nightly
def test_run_killed_at_many_moments_resumes_to_the_same_bytes(finished_store, run, tmp_path):
    store, wanted = small_home(tmp_path / "home"), files(finished_store, run)
    generator = np.random.default_rng(20240102)
    with started(store.home, stdin=subprocess.PIPE) as forks:
        for attempt in range(N_KILLS):
            moment = int(generator.integers(5, 12)), float(generator.uniform(0.0, 0.05))
            kill_after(forks, f"attempt-{attempt}", *moment)
            require_consistent(store, run, wanted)
        forks.stdin.close()
    ended(started(store.home, "last"))
    assert store.ledger.run(run.run_id).status == "done"
    assert store.ledger.run(run.run_id).attempts == N_KILLS + 1
    found = files(store, run)
    assert not [name for name in found if name.endswith(".checkpoint")]
    assert {name: content for name, content in found.items() if name.endswith(".zip")} == {
        name: content for name, content in wanted.items() if name.endswith(".zip")
    }
    require_equal(rows_of(store, run.run_id), rows_of(finished_store, run.run_id))


@pytest.mark.slow
def test_replay_of_the_tests_is_a_new_run_with_equal_trajectories(finished_store, run):
    ledger = finished_store.ledger
    steps = list(replay_run(finished_store, run.run_id[:6], ME))
    row = ledger.run(steps[0].run_id)
    assert (row.kind, row.status, row.parent_run_id) == ("replay", "done", run.run_id)
    assert row.spec_hash == run.spec_hash
    assert row.run_id != run.run_id
    was, now = rows_of(finished_store, run.run_id), rows_of(finished_store, row.run_id)
    tested = was["rl.trajectories"].filter(pl.col("phase") == "test")
    assert now["rl.trajectories"].drop("run_id", "phase").equals(tested.drop("run_id", "phase"))
    for name in ("rl.equity_curves", "rl.action_logs", "rl.reward_decomposition"):
        assert now[name].drop("run_id").equals(was[name].drop("run_id"))
    (of_all,) = was["evaluation.walk_forward_evaluation"].partition_by("run_id")
    of_all = of_all.filter(pl.col("period") == "all").drop("run_id")
    assert now["evaluation.walk_forward_evaluation"].drop("run_id").equals(of_all)
    assert dict(ledger.policies(row.run_id).select("file", "sha256").iter_rows()) == run.policies


@pytest.mark.slow
def test_replay_window_open_end_is_that_of_tests_then_market(finished_store, run):
    first, last = run.as_parent.window
    market_end, later = finished_store.panels.read(EXPERIMENT.market).sessions[-1].item(), last + dt.timedelta(days=1)
    assert replay_window(finished_store, run.run_id, (later, None)) == (later, market_end)
    day = first + dt.timedelta(days=30)
    assert replay_window(finished_store, run.run_id, (None, None)) is None
    assert replay_window(finished_store, run.run_id, (day, None)) == (day, last)
    assert replay_window(finished_store, run.run_id, (None, day)) == (first, day)


@pytest.mark.slow
def test_stopped_and_halted_training_resumes_to_the_same_bytes(finished_store, run, tmp_path):
    store = small_home(tmp_path / "home")
    ledger, plan, switch = store.ledger, read_plan(store, KEY), FileKillSwitch(store.home)
    steps = train_run(store, plan, ME)
    next(step for step in steps if step.stage == "train.checkpoint")
    steps.close()
    assert ledger.run(plan.run_id).status == "interrupted"
    with pytest.raises(StorageError):
        list(walk_run(store, plan, ME))
    steps = train_run(store, plan, ME)
    next(step for step in steps if step.stage == "train.checkpoint")
    switch.write(Halt(reason="news", by="ann", at=now()))
    with pytest.raises(RunHalted):
        next(steps)
    assert not store.policies.is_sealed(KEY, plan.run_id)
    stored = files(store, run)
    for launch in (train_run, walk_run, judge_run):
        with pytest.raises(RunHalted):
            list(launch(store, plan, ME))
    assert (ledger.run(plan.run_id).status, files(store, run)) == ("interrupted", stored)
    switch.remove()
    list(train_run(store, plan, ME))
    trained = ledger.run(plan.run_id)
    assert (trained.status, trained.kind, trained.attempts) == ("running", "walk_forward", 7)
    assert store.tables.read(RUNS).is_empty()
    list(walk_run(store, plan, ME))
    list(judge_run(store, plan, ME))
    assert ledger.run(plan.run_id).status == "done"
    assert store.tables.read(RUNS)["kind"].to_list() == ["walk_forward"]
    kept = ledger.policies(plan.run_id)
    assert dict(kept.select("file", "sha256").iter_rows()) == run.policies
    resumed = store.policies.read_latest(KEY)
    assert resumed == run.model_copy(update={"snapshot_ids": resumed.snapshot_ids})  # of another home
    require_equal(rows_of(store, run.run_id), rows_of(finished_store, run.run_id))


class Tracker:
    """MLflow run that cannot be written to the first time."""

    mlflow_run_id = "mlflow"

    def __init__(self):
        self.verdicts = []

    def log_verdict(self, verdict):
        self.verdicts.append(verdict)
        if len(self.verdicts) == 1:
            raise OSError("the disk is full")


@pytest.mark.slow
def test_run_whose_verdict_could_not_be_logged_is_judged_again(tmp_path):
    store = small_home(tmp_path / "home")
    plan = read_plan(store, KEY)
    sealed(store, plan)
    list(walk_run(store, plan, ME))
    tracker = Tracker()
    with pytest.raises(OSError):
        list(judge_run(store, plan, ME, tracker))
    assert store.ledger.run(plan.run_id).status == "failed"
    assert store.tables.read(RUNS).is_empty()
    list(judge_run(store, plan, ME, tracker))
    assert store.ledger.run(plan.run_id).mlflow_run_id == "mlflow"
    assert store.tables.read(RUNS)["mlflow_run_id"].to_list() == ["mlflow"]
    assert tracker.verdicts[0].equals(tracker.verdicts[1])


@pytest.mark.slow
def test_run_with_a_changed_sealed_policy_fails(tmp_path):
    store = small_home(tmp_path / "home")
    ledger, plan = store.ledger, read_plan(store, KEY)
    sealed(store, plan)
    store.policies.folder(KEY, plan.run_id).joinpath("fold-0-seed-0.zip").write_bytes(b"changed")
    with pytest.raises(StorageError):
        list(walk_run(store, plan, ME))
    assert ledger.run(plan.run_id).status == "failed"
    assert "missing or were changed after sealing" in ledger.run(plan.run_id).message
    assert ledger.events(plan.run_id)["stage"][-1] == "error"


@pytest.mark.nightly
@pytest.mark.slow
def test_two_processes_give_equal_policies_and_rows(finished_store, run, tmp_path):
    store = small_home(tmp_path / "home")
    list(run_whole(store, KEY, ME))
    again = store.policies.read_latest(KEY)
    assert (again.run_id, again.sha256) == (run.run_id, run.sha256)
    require_equal(rows_of(store, run.run_id), rows_of(finished_store, run.run_id))


@pytest.fixture(scope="module")
def grown(finished_store, tmp_path_factory):
    """Copy of the home in which newer bars have landed, and the run; replays may be added."""
    store = Store(copy_home(finished_store.home, tmp_path_factory.mktemp("grown") / "home"))
    land(store, N_SESSIONS + 40)
    return store, store.policies.read_latest(KEY)


@pytest.mark.nightly
@pytest.mark.slow
def test_run_on_recorded_snapshots_ignores_newer_bars(grown, run):
    store, before = grown
    assert read_plan(store, KEY).run_id != before.run_id
    rows, content = rows_of(store, before.run_id), files(store, before)
    for path in store.policies.folder(KEY, before.run_id).iterdir():
        path.unlink()
    steps = list(run_whole(store, KEY, ME, before.snapshot_ids))
    assert steps[-1].run_id == before.run_id == run.run_id
    assert files(store, before) == content
    require_equal(rows_of(store, before.run_id), rows)


@pytest.mark.slow
def test_replays_use_recorded_or_current_market_and_forward_continues(grown):
    store, before = grown
    *_, recorded = (step.run_id for step in replay_run(store, before.run_id, ME, pinned=True))
    *_, current = (step.run_id for step in replay_run(store, before.run_id, ME))
    assert recorded != current
    curves = {each: rows_of(store, each)["rl.equity_curves"].drop("run_id") for each in (recorded, current)}
    assert curves[recorded].equals(curves[current])  # the newer bars are after the window
    assert store.ledger.run(recorded).snapshot_ids == before.snapshot_ids

    paper = list(forward_run(store, before.run_id, ME))
    account = store.tables.read(EQUITY_CURVES, {"run_id": [paper[0].run_id]})
    assert account["session"].min() > before.as_parent.window[1]
    assert account["session"].n_unique() == 40
    land(store, N_SESSIONS + 50)
    longer = list(forward_run(store, before.run_id, ME))
    assert longer[0].run_id == paper[0].run_id
    extended = store.tables.read(EQUITY_CURVES, {"run_id": [paper[0].run_id]})
    assert extended["session"].n_unique() == 50
    past = extended.filter(pl.col("session") <= account["session"].max())
    assert past.sort("policy", "session").equals(account.sort("policy", "session"))
    assert set(store.tables.read(RUNS)["kind"]) == {"walk_forward", "replay", "forward"}


def test_policies_of_other_symbols_or_features_are_not_adopted(tmp_path):
    store = market_home(tmp_path / "home")
    plan = planned(store)
    archives = store.policies.read_run(sealed(store, plan))
    for field in ("symbols", "feature_names"):
        other = planned(store, **{field: (*getattr(plan.panel, field)[:-1], "other")})
        with pytest.raises(PolicyArchiveError):
            adopt_policies(store, other, archives, ME)
    assert set(store.ledger.runs()["run_id"]) == {plan.run_id}
