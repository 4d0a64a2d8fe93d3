"""A run's life in the ledger: opened as it begins, its events noted, closed as it ends in whatever way."""

from collections.abc import Generator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TypeVar

from nvtrader_pipelines.evaluation.steps import Steps
from nvtrader_pipelines.experiments.plan import RunPlan
from nvtrader_pipelines.experiments.progress import Progress
from nvtrader_pipelines.storage.ledger import Ledger, RunRow

Result = TypeVar("Result")
FREQUENT = ("train.step", "evaluate.step")
INTERRUPTED = "the run was interrupted; run it again to go on where it stopped"


@dataclass(frozen=True)
class Launch:
    """Who runs: an execution of its own name, by itself or as part of a Dagster run."""

    task_id: str
    dagster_run_id: str | None = None

    def row(self, plan: RunPlan) -> RunRow:
        """The row of a plan that is executed now."""
        return RunRow.of(plan, self.task_id, now(), dagster_run_id=self.dagster_run_id)


def now() -> datetime:
    """The time, in UTC."""
    return datetime.now(UTC)


def recorded(
    ledger: Ledger,
    row: RunRow,
    steps: Generator[Progress, None, Result],
    *,
    closes: bool = True,
    mlflow_run_id: str | None = None,
) -> Generator[Progress, None, Result]:
    """The same steps, with the run's row opened before the first and closed after the last.

    An error closes it as failed with its sentence, told as a last step before it is raised; an interrupt or a caller
    that stops early closes it as interrupted. With `closes` off, a run that ends well stays open for what follows.
    """
    ledger.begin(row)
    sparse, running, last = _Sparse(), Steps(steps), None
    try:
        for last in running:
            if sparse.wants(last):
                ledger.record_event(last)
            yield last
    except BaseException as error:
        steps.close()
        if not isinstance(error, Exception):  # Ctrl-C, a signal, or a caller that has seen enough
            ledger.finish(row.run_id, "interrupted", message=INTERRUPTED)
            raise
        told = _error(row, error)
        ledger.record_event(told)
        ledger.finish(row.run_id, "failed", message=told.message)
        yield told
        raise
    if closes:
        metrics = (last.metrics or None) if last else None
        ledger.finish(row.run_id, "done", metrics=metrics, mlflow_run_id=mlflow_run_id)
    return running.result


def _error(row: RunRow, error: Exception) -> Progress:
    message = _sentence(error)
    return Progress(task_id=row.task_id, run_id=row.run_id, stage="error", message=message, timestamp=now())


def _sentence(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__


class _Sparse:
    """Of the frequent steps, those that come to another tenth of their training or of their run."""

    def __init__(self) -> None:
        self._reached: dict[tuple[str, int | None, int | None], int] = {}

    def wants(self, step: Progress) -> bool:
        """Whether the ledger keeps this step."""
        if step.stage not in FREQUENT:
            return True
        key, reached = (step.stage, step.fold, step.seed), self._place(step)
        wanted = self._reached.get(key) != reached
        self._reached[key] = reached
        return wanted

    def _place(self, step: Progress) -> int:
        if step.timesteps and step.total_timesteps:
            return 10 * step.timesteps // step.total_timesteps
        return int(10 * (step.share or 0.0))
