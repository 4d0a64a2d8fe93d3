"""MLflow runs of a search session: one for the session, and one nested below it for each trial."""

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from nvtrader_pipelines.orchestration.mlflow_curves import N_LISTED, RUN_TAG
from nvtrader_pipelines.orchestration.mlflow_tracking import (
    MLFLOW_PARENT_TAG,
    MlflowTracking,
    TrackedRun,
    flatten,
)
from nvtrader_pipelines.research.journal import Line, SessionClosed, TrialJudged, TrialRerun
from nvtrader_pipelines.research.session_spec import Session
from nvtrader_pipelines.storage.home import Home

if TYPE_CHECKING:
    from mlflow import MlflowClient

GROUP = "search"  # tag of the runs of a session
_NONE: Mapping[str, Any] = {}


def track_session(
    home: Home, session: Session, lines: Sequence[Line], steps: Iterable[Line], warn: Callable[[str], None]
) -> Generator[Line, None, None]:
    """Yield the lines of a session as they come, each logged to MLflow by a thread of its own.

    MLflow takes seconds to import, for which no trial waits. A store that fails is one warning; the session does not
    need it.

    Args:
        home: home of the MLflow store.
        session: the session.
        lines: of its journal before the steps; those that MLflow lacks, since a process was killed, are logged first.
        steps: new lines.
        warn: shows a warning.
    """
    queue: SimpleQueue[Line | BaseException | None] = SimpleQueue()
    for line in lines:
        queue.put(line)
    with ThreadPoolExecutor(1) as thread:
        mirror = thread.submit(_mirror, home, session, queue, warn)
        try:
            for line in steps:
                queue.put(line)
                yield line
        except BaseException as error:
            queue.put(error)
            raise
        queue.put(None)
        mirror.result()


def _mirror(
    home: Home, session: Session, queue: "SimpleQueue[Line | BaseException | None]", warn: Callable[[str], None]
) -> None:
    """Log lines until None or an error, which ends the session's run."""
    with MlflowTracking.at(home).run(session.session_id, f"search {session.session_id}", warn) as mirrored:
        trials = mirrored.log(lambda run: SearchRuns(run, session))
        while (line := queue.get()) is not None:
            if isinstance(line, BaseException):
                raise line
            if trials:
                mirrored.log(lambda _, runs=trials, line=line: runs.log(line))


class SearchRuns:
    """MLflow runs of the trials of a session."""

    def __init__(self, run: TrackedRun, session: Session) -> None:
        self._run, self._session_id = run, session.session_id
        nested = run.client.search_runs(
            [run.experiment_id], f"tags.`{MLFLOW_PARENT_TAG}` = '{run.mlflow_run_id}'", max_results=N_LISTED
        )
        self._logged = {run.data.tags[RUN_TAG]: run.info for run in nested}
        settings = flatten(session.spec.model_dump(mode="json", exclude={"base", "goal"}))
        _log_batch(
            run.client,
            run.mlflow_run_id,
            params=settings,
            tags={"kind": GROUP, "mlflow.note.content": session.spec.goal},
        )

    def log(self, line: Line) -> None:
        """Log a trial, its rerun or the verdict; other lines, and trials that MLflow has, are left out."""
        if isinstance(line, TrialJudged) and line.status != "known":
            self._log_trial(line)
        elif isinstance(line, TrialRerun):
            lead = line.lead
            figures = {"lead_of_all_seeds": lead.difference, "t_of_all_seeds": lead.t} if lead else {}
            run_id = self._logged[self._key(line.trial)].run_id
            _log_batch(self._run.client, run_id, metrics=figures, tags={"standing": line.standing})
        elif isinstance(line, SessionClosed):
            verdict = {"outcome": line.outcome, "verdict": line.sentence}
            _log_batch(self._run.client, self._run.mlflow_run_id, tags=verdict)

    def _key(self, trial: int | None) -> str:
        return f"{self._session_id}/{trial}"

    def _log_trial(self, line: TrialJudged) -> None:
        key, client = self._key(line.trial), self._run.client
        run = self._logged.get(key)
        if run and run.status != "RUNNING":
            return
        if run is None:
            tags = {RUN_TAG: key, MLFLOW_PARENT_TAG: self._run.mlflow_run_id}
            tags |= {"status": line.status, "standing": line.standing}
            run = client.create_run(
                self._run.experiment_id, tags=tags, run_name=f"trial {line.trial} {self._session_id}"
            ).info
            self._logged[key] = run
        lead = {"lead": line.lead.difference, "t": line.lead.t} if line.lead else {}
        _log_batch(
            client,
            run.run_id,
            params={name: str(value) for name, value in (line.knobs or line.proposed).items()},
            metrics={"sharpe": line.sharpe, "max_drawdown": line.max_drawdown, "bar": line.bar, **lead},
        )
        client.set_terminated(run.run_id, "FAILED" if line.status in ("failed", "infeasible") else "FINISHED")


def _log_batch(
    client: "MlflowClient",
    run_id: str,
    *,
    params: Mapping[str, str] = _NONE,
    metrics: Mapping[str, float | None] = _NONE,
    tags: Mapping[str, str] = _NONE,
) -> None:
    """Log parameters, figures that are there, and tags in one transaction."""
    from mlflow.entities import Metric, Param, RunTag  # takes seconds to import

    client.log_batch(
        run_id,
        [Metric(name, value, 0, 0) for name, value in metrics.items() if value is not None],
        [Param(name, value) for name, value in params.items()],
        [RunTag(name, value) for name, value in tags.items()],
    )
