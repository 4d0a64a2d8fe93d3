"""Use cases of a run: train, walk, judge, replay, carry forward; each yields its progress step by step."""

from collections.abc import Generator
from datetime import date

import polars as pl

from nvtrader_pipelines.evaluation.backtest import BacktestRecord
from nvtrader_pipelines.experiments.plan import RunPlan
from nvtrader_pipelines.experiments.progress import Progress
from nvtrader_pipelines.experiments.runtime import Runtime
from nvtrader_pipelines.experiments.sealed_run import SealedRun
from nvtrader_pipelines.runs.lifecycle import Launch, now, recorded
from nvtrader_pipelines.runs.planning import read_forward, read_replay
from nvtrader_pipelines.runs.store import StoredRun
from nvtrader_pipelines.storage.store import Store

Steps = Generator[Progress, None, None]
Window = tuple[date, date]


def train_run(store: Store, plan: RunPlan, launch: Launch) -> Steps:
    """Train what a plan's run lacks, and seal its policies; the run stays open to be walked and judged."""
    steps = _with_policies(store, plan, _runtime(store, plan, launch).train())
    return recorded(store.ledger, launch.row(plan), steps, closes=False)


def walk_run(store: Store, plan: RunPlan, launch: Launch) -> Generator[Progress, None, BacktestRecord]:
    """Walk a sealed run through its tests and store the record; the run stays open to be judged."""
    return recorded(store.ledger, launch.row(plan), _runtime(store, plan, launch).walk(), closes=False)


def judge_run(
    store: Store, plan: RunPlan, launch: Launch, mlflow_run_id: str | None = None
) -> Generator[Progress, None, pl.DataFrame]:
    """Give and store the verdict on a run that was walked, which completes it; return the verdict."""
    steps = _runtime(store, plan, launch, mlflow_run_id=mlflow_run_id).judge()
    return recorded(store.ledger, launch.row(plan), steps, mlflow_run_id=mlflow_run_id)


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
    return recorded(store.ledger, launch.row(plan), _walk_and_judge(store, plan, launch, parent))


def forward_run(store: Store, run_id: str, launch: Launch) -> Steps:
    """Carry the last policies of a sealed run on over every session since its tests, on the market as it is now.

    Raises:
        StorageError: if there is no such run, or it is not sealed.
        ValueError: if the market ends before its tests did.
    """
    parent = sealed_run(store, run_id)
    plan = read_forward(store, parent)
    return recorded(store.ledger, launch.row(plan), _walk_and_judge(store, plan, launch, parent))


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


def _walk_and_judge(store: Store, plan: RunPlan, launch: Launch, parent: SealedRun) -> Steps:
    """Walk and judge with the policies of a parent."""
    runtime = _runtime(store, plan, launch, parent)
    yield from _with_policies(store, plan, runtime.walk(), parent)
    yield from runtime.judge()


def _runtime(
    store: Store,
    plan: RunPlan,
    launch: Launch,
    parent: SealedRun | None = None,
    mlflow_run_id: str | None = None,
) -> Runtime:
    """Runtime of a plan that stores its results in this home."""
    return Runtime(plan, StoredRun(store, plan, now, parent, mlflow_run_id), launch.task_id, now)


def _with_policies(
    store: Store, plan: RunPlan, steps: Generator[Progress, None, object], parent: SealedRun | None = None
) -> Steps:
    """The steps, after which the ledger knows the policies by their digests."""
    yield from steps
    run = StoredRun(store, plan, now, parent).run
    store.ledger.record_policies(plan.run_id, run.policies, run.sha256)
