"""Runs as they are asked for: planned on the tables, kept in the library and the tables, told step by step."""

from collections.abc import Callable, Generator
from datetime import UTC, datetime
from typing import TypeVar

from nvtrader_pipelines.experiments.plan import RunPlan
from nvtrader_pipelines.experiments.progress import Progress
from nvtrader_pipelines.experiments.runtime import Runtime
from nvtrader_pipelines.storage.policy_library import SealedRun
from nvtrader_pipelines.storage.run_store import StoredRun
from nvtrader_pipelines.storage.warehouse import Warehouse

Result = TypeVar("Result")


def now() -> datetime:
    """The time, in UTC."""
    return datetime.now(UTC)


def followed(steps: Generator[Progress, None, Result], report: Callable[[str], None]) -> Result:
    """Run to the end, telling of each step; the generator's own result."""
    while True:
        try:
            report(next(steps).message)
        except StopIteration as end:
            return end.value


def runtime_of(lake: Warehouse, plan: RunPlan, task_id: str, parent: SealedRun | None = None) -> Runtime:
    """The runtime of a plan, which keeps what it makes in this home."""
    return Runtime(plan, StoredRun(lake, plan, now, parent), task_id, now)
