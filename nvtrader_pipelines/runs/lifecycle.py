"""Life cycle of a run in the ledger: begun, noted and closed, however it ends."""

from collections.abc import Generator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TypeVar

from nvtrader_pipelines.evaluation.step_generators import Steps
from nvtrader_pipelines.experiments.plan import RunPlan
from nvtrader_pipelines.experiments.progress import Progress
from nvtrader_pipelines.runs.interruptions import INTERRUPTED, RunHalted, is_interruption, require_no_halt
from nvtrader_pipelines.storage.ledger import RunRow
from nvtrader_pipelines.storage.store import Store

Result = TypeVar("Result")
FREQUENT_STAGES = ("train.step", "evaluate.step")


@dataclass(frozen=True)
class Launch:
    """Execution of a run, by itself or as part of a Dagster run."""

    task_id: str
    dagster_run_id: str | None = None

    def row(self, plan: RunPlan) -> RunRow:
        """Ledger row of a plan executed now."""
        return RunRow.of(plan, self.task_id, now(), dagster_run_id=self.dagster_run_id)


def now() -> datetime:
    """Current time in UTC."""
    return datetime.now(UTC)


def record_run(
    store: Store,
    row: RunRow,
    steps: Generator[Progress, None, Result],
    *,
    closes: bool = True,
    mlflow_run_id: str | None = None,
) -> Generator[Progress, None, Result]:
    """Yield the steps; open the run in the ledger before the first, close it after the last.

    An error is yielded as a last step and closes the run as failed; an interruption closes it as interrupted. The kill
    switch is read before the first step and after every one but the last. With `closes` off, a successful run stays
    open for its next part.
    """
    ledger = store.ledger
    ledger.begin(row)
    thinner, running, last = _ProgressThinner(), Steps(steps), None
    try:
        require_no_halt(store)
        for last in running:
            if thinner.wants(last):
                ledger.record_event(last)
            yield last
            if last.stage != "done":
                require_no_halt(store)
    except BaseException as error:
        steps.close()
        if is_interruption(error):
            reason = str(error) if isinstance(error, RunHalted) else INTERRUPTED
            ledger.finish(row.run_id, "interrupted", message=reason)
            raise
        message = " ".join(str(error).split()) or type(error).__name__
        failure = Progress(task_id=row.task_id, run_id=row.run_id, stage="error", message=message, timestamp=now())
        ledger.record_event(failure)
        ledger.finish(row.run_id, "failed", message=message)
        yield failure
        raise
    if closes:
        metrics = (last.metrics or None) if last else None
        ledger.finish(row.run_id, "done", metrics=metrics, mlflow_run_id=mlflow_run_id)
    return running.result


class _ProgressThinner:
    """Filter of frequent steps: one per tenth of a training or of a run passes."""

    def __init__(self) -> None:
        self._reached: dict[tuple[str, int | None, int | None], int] = {}

    def wants(self, step: Progress) -> bool:
        """Whether the ledger stores this step."""
        if step.stage not in FREQUENT_STAGES:
            return True
        key, reached = (step.stage, step.fold, step.seed), self._tenth(step)
        is_new = self._reached.get(key) != reached
        self._reached[key] = reached
        return is_new

    def _tenth(self, step: Progress) -> int:
        if step.timesteps and step.total_timesteps:
            return 10 * step.timesteps // step.total_timesteps
        return int(10 * (step.share or 0.0))
