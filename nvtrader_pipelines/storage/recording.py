"""A run's life in the ledger: opened as it begins, its events noted, closed as it ends in whatever way."""

from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Literal, Protocol, TypeVar

from nvtrader_pipelines.experiments.plan import CODE_VERSION, RunPlan
from nvtrader_pipelines.experiments.progress import Progress

Result = TypeVar("Result")
Asked = Literal["train", "evaluate", "walk_forward", "replay", "paper"]
Outcome = Literal["done", "failed", "interrupted"]
FREQUENT = ("train.step", "evaluate.step")
INTERRUPTED = "the run was interrupted; run it again to go on where it stopped"


@dataclass(frozen=True)
class Launch:
    """Who runs: an execution of its own name, started by a person or by Dagster."""

    task_id: str
    dagster_run_id: str | None = None


@dataclass(frozen=True)
class RunRow:
    """What the ledger keeps of a run as it begins."""

    run_id: str
    kind: Asked
    parent_run_id: str | None
    spec_hash: str
    partition_key: str
    source: str
    window_first: date
    window_last: date
    panel_digest: str
    snapshot_ids: Mapping[str, int]
    code_version: str
    seeds: tuple[int, ...]
    task_id: str
    dagster_run_id: str | None = None

    @classmethod
    def of(cls, plan: RunPlan, kind: Asked, launch: Launch) -> "RunRow":
        """The row of a plan."""
        first, last = plan.window
        return cls(
            run_id=plan.run_id,
            kind=kind,
            parent_run_id=plan.parent_run_id,
            spec_hash=plan.spec.spec_hash,
            partition_key=plan.spec.partition_key,
            source=plan.panel.source,
            window_first=first,
            window_last=last,
            panel_digest=plan.panel_digest,
            snapshot_ids=dict(plan.panel.snapshot_ids),
            code_version=CODE_VERSION,
            seeds=plan.spec.seeds,
            task_id=launch.task_id,
            dagster_run_id=launch.dagster_run_id,
        )


class FoundRun(Protocol):
    """A run that the ledger has found."""

    @property
    def run_id(self) -> str:
        """Its whole id."""
        ...

    @property
    def partition_key(self) -> str:
        """Its experiment."""
        ...

    @property
    def parent_run_id(self) -> str | None:
        """The run whose policies it uses."""
        ...


class RunLedger(Protocol):
    """The side of the ledger that a run writes."""

    def begin(self, row: RunRow) -> None:
        """Open a run, or open it again."""
        ...

    def note(self, progress: Progress) -> None:
        """Keep an event."""
        ...

    def finish(
        self,
        run_id: str,
        status: Outcome,
        *,
        metrics: Mapping[str, float] | None = None,
        mlflow_run_id: str | None = None,
        message: str | None = None,
    ) -> None:
        """Close a run."""
        ...

    def keep_policies(self, run_id: str, policies: Mapping[str, str]) -> None:
        """Keep which policy files a run uses, by their digests."""
        ...

    def find_run(self, prefix: str) -> FoundRun:
        """The one run whose id begins so."""
        ...


def recorded(
    ledger: RunLedger, row: RunRow, steps: Generator[Progress, None, Result], *, closes: bool = True
) -> Generator[Progress, None, Result]:
    """The same steps, with the run's row opened before the first and closed after the last.

    An error closes it as failed with its sentence, told as a last step before it is raised; an interrupt or a caller
    that stops early closes it as interrupted. With `closes` off, a run that ends well stays open for what follows.
    """
    ledger.begin(row)
    sparse, last = _Sparse(), None
    try:
        while True:
            try:
                last = next(steps)
            except StopIteration as end:
                result: Result = end.value
                break
            if sparse.wants(last):
                ledger.note(last)
            yield last
    except BaseException as error:
        steps.close()
        if not isinstance(error, Exception):  # Ctrl-C, a signal, or a caller that has seen enough
            ledger.finish(row.run_id, "interrupted", message=INTERRUPTED)
            raise
        told = _error(row, error)
        ledger.note(told)
        ledger.finish(row.run_id, "failed", message=told.message)
        yield told
        raise
    if closes:
        ledger.finish(row.run_id, "done", metrics=last.metrics if last else None)
    return result


@contextmanager
def failing(ledger: RunLedger, run_id: str) -> Iterator[None]:
    """Close a run that fails or is interrupted in the block; one that ends well stays as it is."""
    try:
        yield
    except BaseException as error:
        if isinstance(error, Exception):
            ledger.finish(run_id, "failed", message=_sentence(error))
        else:
            ledger.finish(run_id, "interrupted", message=INTERRUPTED)
        raise


def _error(row: RunRow, error: Exception) -> Progress:
    now = datetime.now(UTC)
    return Progress(task_id=row.task_id, run_id=row.run_id, stage="error", message=_sentence(error), timestamp=now)


def _sentence(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__


class _Sparse:
    """Of the frequent steps, those that come to another tenth of their training or hundredth of their run."""

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
        return int(100 * (step.share or 0.0))
