"""Runs as they are asked for: planned on the tables, kept in library, tables and ledger, told step by step."""

from collections.abc import Callable, Generator
from datetime import date
from typing import TypeVar

import polars as pl

from nvtrader_pipelines.evaluation.backtest import BacktestRecord
from nvtrader_pipelines.experiments.plan import RunPlan
from nvtrader_pipelines.experiments.progress import Progress
from nvtrader_pipelines.experiments.runtime import Runtime, headline
from nvtrader_pipelines.storage.ledger import Ledger
from nvtrader_pipelines.storage.plans import read_paper, read_replay
from nvtrader_pipelines.storage.policy_library import PolicyLibrary, SealedRun
from nvtrader_pipelines.storage.recording import Launch, now, recorded
from nvtrader_pipelines.storage.run_store import StoredRun
from nvtrader_pipelines.storage.runs import complete, replace_run
from nvtrader_pipelines.storage.tables import EVALUATIONS
from nvtrader_pipelines.storage.warehouse import Warehouse

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


def train_run(lake: Warehouse, ledger: Ledger, plan: RunPlan, launch: Launch) -> Steps:
    """Train what a plan's run lacks; the run stays open for its tests."""
    steps = _with_policies(lake, ledger, plan, runtime_of(lake, plan, launch.task_id).train())
    return recorded(ledger, launch.row(plan), steps, closes=False)


def judge_run(
    lake: Warehouse, ledger: Ledger, plan: RunPlan, launch: Launch
) -> Generator[Progress, None, BacktestRecord]:
    """Walk a sealed run through its tests and keep the record; the run stays open for its verdict."""
    return recorded(ledger, launch.row(plan), runtime_of(lake, plan, launch.task_id).judge(), closes=False)


def keep_verdict(
    lake: Warehouse, ledger: Ledger, run: SealedRun, verdict: pl.DataFrame, mlflow_run_id: str | None = None
) -> int:
    """Write the verdict on a run that was walked through its tests, which completes and closes it; how many rows."""
    n_rows = replace_run(lake, EVALUATIONS, verdict, run)
    complete(lake, run, now(), mlflow_run_id)
    ledger.finish(run.run_id, "done", metrics=headline(verdict), mlflow_run_id=mlflow_run_id)
    return n_rows


def replay_run(
    lake: Warehouse,
    ledger: Ledger,
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
    parent = sealed_run(lake, ledger, run_id)
    plan = read_replay(lake, parent, window, parent.snapshot_ids if pinned else None)
    steps = _with_policies(lake, ledger, plan, runtime_of(lake, plan, launch.task_id, parent).replay(), parent)
    return recorded(ledger, launch.row(plan), steps)


def paper_run(lake: Warehouse, ledger: Ledger, run_id: str, launch: Launch) -> Steps:
    """Carry the last policies of a sealed run on over every session since its tests, on the market as it is now.

    Raises:
        StorageError: if there is no such run, or it is not sealed.
        ValueError: if the market ends before its tests did.
    """
    parent = sealed_run(lake, ledger, run_id)
    plan = read_paper(lake, parent)
    steps = _with_policies(lake, ledger, plan, runtime_of(lake, plan, launch.task_id, parent).paper(), parent)
    return recorded(ledger, launch.row(plan), steps)


def replay_window(lake: Warehouse, ledger: Ledger, run_id: str, days: tuple[date | None, date | None]) -> Window | None:
    """The window of a replay whose first or last day is left open: there it is that of the run's own tests.

    Raises:
        StorageError: if there is no such run, or it is not sealed.
    """
    first, last = sealed_run(lake, ledger, run_id).as_parent.window
    return None if days == (None, None) else (days[0] or first, days[1] or last)


def sealed_run(lake: Warehouse, ledger: Ledger, run_id: str) -> SealedRun:
    """The run whose policies are meant by the begin of a run's id; of a replay or paper account, its parent's.

    Raises:
        StorageError: if no run or several begin so, or its policies are not all there.
    """
    found = ledger.find_run(run_id)
    return PolicyLibrary(lake.home).sealed(found.partition_key, found.parent_run_id or found.run_id)


def runtime_of(lake: Warehouse, plan: RunPlan, task_id: str, parent: SealedRun | None = None) -> Runtime:
    """The runtime of a plan, which keeps what it makes in this home."""
    return Runtime(plan, StoredRun(lake, plan, now, parent), task_id, now)


def _with_policies(
    lake: Warehouse, ledger: Ledger, plan: RunPlan, steps: Steps, parent: SealedRun | None = None
) -> Steps:
    """The steps, after which the ledger knows the policies by their digests."""
    yield from steps
    run = StoredRun(lake, plan, now, parent).run
    ledger.keep_policies(plan.run_id, run.policies, run.sha256)
