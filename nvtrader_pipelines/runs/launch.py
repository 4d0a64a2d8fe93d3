"""Runs as they are asked for: planned on the tables, kept in library, tables and ledger, told step by step."""

from collections.abc import Callable, Generator
from datetime import date
from typing import TypeVar

from nvtrader_pipelines.evaluation.backtest import BacktestRecord
from nvtrader_pipelines.experiments.plan import RunPlan
from nvtrader_pipelines.experiments.progress import Progress
from nvtrader_pipelines.experiments.runtime import Runtime
from nvtrader_pipelines.experiments.sealed_run import SealedRun
from nvtrader_pipelines.runs.lifecycle import Launch, now, recorded
from nvtrader_pipelines.runs.planning import read_forward, read_plan, read_replay, reopen_plan
from nvtrader_pipelines.runs.store import StoredRun
from nvtrader_pipelines.storage.store import Store

Result = TypeVar("Result")
Steps = Generator[Progress, None, None]
Window = tuple[date, date]


def followed(steps: Generator[Progress, None, Result], report: Callable[[Progress], None]) -> Result:
    """Run to the end, telling of each step; the generator's own result."""
    while True:
        try:
            report(next(steps))
        except StopIteration as end:
            return end.value


def train_run(store: Store, plan: RunPlan, launch: Launch, *, to_be_judged: bool = False) -> Steps:
    """Train what a plan's run lacks; one that is `to_be_judged` stays open in the ledger."""
    steps = _with_policies(store, plan, runtime_of(store, plan, launch.task_id).train())
    row = launch.row(plan, "walk_forward" if to_be_judged else "train")
    return recorded(store.ledger, row, steps, closes=not to_be_judged)


def judge_run(store: Store, plan: RunPlan, launch: Launch) -> Generator[Progress, None, BacktestRecord]:
    """Walk a sealed run through its tests and keep the record; the run stays open for its verdict."""
    row = launch.row(plan, "walk_forward")
    return recorded(store.ledger, row, runtime_of(store, plan, launch.task_id).judge(), closes=False)


def evaluate_run(store: Store, run_id: str, launch: Launch) -> Steps:
    """Walk the policies of a sealed run, named by the begin of its id, through their tests and give the verdict.

    Raises:
        StorageError: if there is no such run, it is not sealed, or this code would make another run.
    """
    plan = reopen_plan(store, sealed_run(store, run_id))
    return recorded(store.ledger, launch.row(plan, "evaluate"), runtime_of(store, plan, launch.task_id).evaluate())


def walk_forward_run(
    store: Store,
    partition_key: str,
    launch: Launch,
    snapshot_ids: dict[str, int] | None = None,
) -> Steps:
    """Train, walk and judge a registered experiment on the pinned market, or again on the market at given snapshots.

    A run on given snapshots leaves the experiment's latest policies what they are.

    Raises:
        StorageError: if the experiment is not registered, or its market has no panel or not these snapshots any more.
    """
    plan = read_plan(store, partition_key, snapshot_ids)
    stored = StoredRun(store, plan, now, latest=snapshot_ids is None)
    steps = _with_policies(store, plan, Runtime(plan, stored, launch.task_id, now).walk_forward())
    return recorded(store.ledger, launch.row(plan, "walk_forward"), steps)


def replay_run(
    store: Store,
    run_id: str,
    launch: Launch,
    window: Window | None = None,
    *,
    pinned: bool = False,
) -> Steps:
    """Walk the policies of a sealed run, named by the begin of its id, through another window or its own again.

    The market is the one that is pinned now, or with `pinned` the one the run recorded.

    Raises:
        StorageError: if there is no such run, it is not sealed, or its recorded market is gone.
        ValueError: if the window holds sessions its policies were trained on, or none.
    """
    parent = sealed_run(store, run_id)
    plan = read_replay(store, parent, window, parent.snapshot_ids if pinned else None)
    steps = _with_policies(store, plan, runtime_of(store, plan, launch.task_id, parent).replay(), parent)
    return recorded(store.ledger, launch.row(plan, "replay"), steps)


def forward_run(store: Store, run_id: str, launch: Launch) -> Steps:
    """Carry the last policies of a sealed run on over every session since its tests, on the market as it is now.

    Raises:
        StorageError: if there is no such run, or it is not sealed.
        ValueError: if the market ends before its tests did.
    """
    parent = sealed_run(store, run_id)
    plan = read_forward(store, parent)
    steps = _with_policies(store, plan, runtime_of(store, plan, launch.task_id, parent).forward(), parent)
    return recorded(store.ledger, launch.row(plan, "forward"), steps)


def replay_window(store: Store, run_id: str, days: tuple[date | None, date | None]) -> Window | None:
    """The window of a replay whose first or last day is left open: there it is that of the run's own tests.

    Raises:
        StorageError: if there is no such run, or it is not sealed.
    """
    first, last = sealed_run(store, run_id).as_parent.window
    return None if days == (None, None) else (days[0] or first, days[1] or last)


def sealed_run(store: Store, run_id: str) -> SealedRun:
    """The run whose policies are meant by the begin of a run's id; of a replay or forward run, its parent's.

    Raises:
        StorageError: if no run or several begin so, or its policies are not all there.
    """
    found = store.ledger.find_run(run_id)
    return store.policies.read_sealed(found.partition_key, found.parent_run_id or found.run_id)


def runtime_of(store: Store, plan: RunPlan, task_id: str, parent: SealedRun | None = None) -> Runtime:
    """The runtime of a plan, which keeps what it makes in this home."""
    return Runtime(plan, StoredRun(store, plan, now, parent), task_id, now)


def _with_policies(store: Store, plan: RunPlan, steps: Steps, parent: SealedRun | None = None) -> Steps:
    """The steps, after which the ledger knows the policies by their digests."""
    yield from steps
    run = StoredRun(store, plan, now, parent).run
    store.ledger.record_policies(plan.run_id, run.policies, run.sha256)
