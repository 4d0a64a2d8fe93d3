"""MLflow runs of a search session: one for the session, and one nested below it for each trial."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from nvtrader_pipelines.orchestration.mlflow_curves import N_LISTED, RUN_TAG
from nvtrader_pipelines.orchestration.mlflow_tracking import (
    MLFLOW_PARENT_TAG,
    MirroredRun,
    MlflowTracking,
    TrackedRun,
    flatten,
)
from nvtrader_pipelines.research.journal import Line, SessionClosed, TrialJudged, TrialRerun
from nvtrader_pipelines.research.session_spec import Session
from nvtrader_pipelines.storage.home import Home

if TYPE_CHECKING:
    from mlflow.entities import Metric

GROUP = "search"  # tag of the runs of a session


def track_session(
    home: Home, session: Session, lines: Sequence[Line], steps: Iterable[Line], warn: Callable[[str], None]
) -> Iterator[Line]:
    """Yield the lines of a session as they come, each logged to MLflow.

    A store that fails is one warning; the session does not need it.

    Args:
        home: home of the MLflow store.
        session: the session.
        lines: of its journal before the steps; those that MLflow lacks, since a process was killed, are logged first.
        steps: new lines.
        warn: shows a warning.
    """
    with MlflowTracking.at(home).run(session.session_id, f"search {session.session_id}", warn) as mirrored:
        trials = mirrored.log(lambda run: SearchRuns(run, session))
        for line in lines:
            _log(mirrored, trials, line)
        for line in steps:
            _log(mirrored, trials, line)
            yield line


def _log(mirrored: MirroredRun, trials: "SearchRuns | None", line: Line) -> None:
    if trials is not None:
        mirrored.log(lambda _: trials.log(line))


class SearchRuns:
    """MLflow runs of the trials of a session."""

    def __init__(self, run: TrackedRun, session: Session) -> None:
        from mlflow.entities import Param, RunTag  # takes seconds to import

        self._run, self._session_id = run, session.session_id
        nested = run.client.search_runs(
            [run.experiment_id], f"tags.`{MLFLOW_PARENT_TAG}` = '{run.mlflow_run_id}'", max_results=N_LISTED
        )
        self._logged = {each.data.tags[RUN_TAG]: each for each in nested}
        settings = flatten(session.spec.model_dump(mode="json", exclude={"base", "goal"}))
        run.client.log_batch(
            run.mlflow_run_id,
            params=[Param(name, value) for name, value in settings.items()],
            tags=[RunTag("kind", GROUP), RunTag("mlflow.note.content", session.spec.goal)],
        )

    def log(self, line: Line) -> None:
        """Log a trial, its rerun or the verdict; other lines, and trials that MLflow has, are left out."""
        if isinstance(line, TrialJudged) and line.status != "known":
            self._log_trial(line)
        elif isinstance(line, TrialRerun):
            lead = line.lead
            figures = {"lead_of_all_seeds": lead.difference, "t_of_all_seeds": lead.t}
            self._log_figures(self._key(line.trial), figures, line.standing)
        elif isinstance(line, SessionClosed):
            for name, text in (("outcome", line.outcome), ("verdict", line.sentence)):
                self._run.client.set_tag(self._run.mlflow_run_id, name, text)

    def _key(self, trial: int | None) -> str:
        return f"{self._session_id}/{trial}"

    def _log_trial(self, line: TrialJudged) -> None:
        from mlflow.entities import Param

        key, client = self._key(line.trial), self._run.client
        if key in self._logged and self._logged[key].info.status == "FINISHED":
            return
        if key not in self._logged:
            tags = {RUN_TAG: key, MLFLOW_PARENT_TAG: self._run.mlflow_run_id, "status": line.status}
            self._logged[key] = client.create_run(
                self._run.experiment_id, tags=tags, run_name=f"trial {line.trial} {self._session_id}"
            )
        run_id = self._logged[key].info.run_id
        knobs = line.knobs or line.proposed
        client.log_batch(run_id, params=[Param(name, str(value)) for name, value in knobs.items()])
        lead = {"lead": line.lead.difference, "t": line.lead.t} if line.lead else {}
        figures = {"sharpe": line.sharpe, "max_drawdown": line.max_drawdown, "bar": line.bar, **lead}
        self._log_figures(key, figures, line.standing)
        client.set_terminated(run_id, "FAILED" if line.status in ("failed", "infeasible") else "FINISHED")

    def _log_figures(self, key: str, figures: Mapping[str, float | None], standing: str) -> None:
        run_id = self._logged[key].info.run_id
        self._run.client.log_batch(run_id, metrics=_metrics(figures))
        self._run.client.set_tag(run_id, "standing", standing)


def _metrics(figures: Mapping[str, float | None]) -> "list[Metric]":
    from mlflow.entities import Metric

    return [Metric(name, value, 0, 0) for name, value in figures.items() if value is not None]
