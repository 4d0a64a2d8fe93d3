"""Documents of search sessions: list, state and journal."""

from collections import Counter
from collections.abc import Sequence
from datetime import date, datetime
from pathlib import Path
from typing import Any, Literal

import polars as pl
from pydantic import Field

from nvtrader_pipelines.components.document import Document, schema_of
from nvtrader_pipelines.evaluation.sharpe.lead import Lead
from nvtrader_pipelines.research.journal import (
    AnswerOutcome,
    BaseJudged,
    Knobs,
    Line,
    LookOpened,
    ModelAsked,
    SessionClosed,
    SessionSummarized,
    Status,
    TrialJudged,
    TrialRerun,
    changed_values,
    work_seconds,
)
from nvtrader_pipelines.research.knobs import SearchMode
from nvtrader_pipelines.research.proposal_bounds import BoundsClip, Snapped
from nvtrader_pipelines.research.recorded_session import (
    RecordedSession,
    handed_on,
    is_closed,
    read_session,
    recorded_state,
    recorded_states,
    trial_views,
)
from nvtrader_pipelines.research.sentences import format_progress, format_rerun, format_sharpe
from nvtrader_pipelines.research.session_report import session_report, write_report
from nvtrader_pipelines.research.session_spec import SessionSpec
from nvtrader_pipelines.research.verdict import SearchState, Standing
from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.store import Store

Activity = Literal["running", "stopped", "finished"]


class SessionSummary(Document):
    """Row of a session."""

    session_id: str
    state: Activity
    outcome: str | None  # of the verdict; null before it
    n_trials: int  # judged so far, pruned, infeasible and failed ones included
    budget: int | None  # trials; null: no limit
    base_sharpe: float | None  # annual, net, on validation; null before the base is judged
    best_sharpe: float | None  # of the best trial, over all its seeds; null without a result
    standing: Standing | None  # of the best trial
    mode: SearchMode
    started_at: datetime
    goal: str
    source: str
    n_symbols: int
    n_known: int  # proposals that were known, which do not count
    seconds: float  # of all trainings and walks, in their workers


class SessionWindows(Document):
    """Days at which the windows of a session begin."""

    validation_from: date  # trials train before it, less a purge
    sealed_from: date  # the validation ends before it
    n_folds: int  # of the validation
    purge_size: int  # sessions between training and validation


class SessionTrial(Document):
    """Trial with what was known after it; Sharpe ratios are annual, net, on validation."""

    trial: int
    sharpe: float | None  # over all its seeds; null without a result
    best_sharpe: float | None  # of the best trial so far
    luck_sharpe: float | None  # luck bar


class SessionDocument(Document):
    """State of a session."""

    summary: SessionSummary
    sentence: str  # the verdict, or the progress so far
    seconds_left: float | None  # estimate of the time to the last trial; null unless it is running
    windows: SessionWindows
    n_lines: dict[str, int]  # of the journal, by event
    notes: tuple[str, ...]
    symbols: tuple[str, ...]
    handed_on: str | None  # name of the experiment that it has handed on
    spec: SessionSpec
    folder: Path
    trials: tuple[SessionTrial, ...]

    def plot(self) -> Any:
        """Plot the Sharpe ratios of the trials, the best so far, the base and the luck bar."""
        from nvtrader_pipelines.figures.plotly_figures import plot_search

        return plot_search(self.frame("trials"), self.summary.base_sharpe, f"Search {self.summary.session_id}")


class ReportDocument(Document):
    """Report of a session, and its files."""

    session_id: str
    path: Path
    picture: Path | None  # null before the base is judged
    markdown: str


class StoppingSession(Document):
    """Session that ends after its current trials."""

    session_id: str
    stop_request: Path  # file that ends it


class ExportedSession(Document):
    """Session written as a study of Optuna."""

    session_id: str
    file: Path  # SQLite


class JournalRow(Document):
    """Row of a line of the journal."""

    proposal: int | None = None
    event: str
    trial: int | None = None
    status: Status | AnswerOutcome | None = None  # of a trial, or of an answer of the model
    standing: Standing | None = None
    sharpe: float | None = None  # annual, net, on validation; of a rerun the mean over all seeds
    lead: float | None = None  # over the base; of the verdict on the sealed window
    t: float | None = None  # lead in standard errors
    bar: float | None = None  # luck bar, in standard errors
    seconds: float
    changed: Knobs = Field(default_factory=dict)  # effective values of the knobs that differ from the base's
    message: str = ""
    clips: tuple[BoundsClip, ...] = ()
    snaps: tuple[Snapped, ...] = ()


def list_sessions(store: Store) -> tuple[list[SessionSummary], list[str]]:
    """Summaries of all sessions, newest first, and the problems of those that cannot be read."""
    summaries: list[SessionSummary] = []
    problems: list[str] = []
    for folder in reversed(store.searches.folders()):
        try:
            summaries.append(_summary(read_session(folder)))
        except StorageError as error:
            problems.append(str(error))
    return summaries, problems


def session_rows(summaries: Sequence[SessionSummary]) -> pl.DataFrame:
    """Rows of sessions."""
    return pl.DataFrame([summary.model_dump() for summary in summaries], schema=schema_of(SessionSummary))


def running_sessions(store: Store) -> tuple[SessionSummary, ...]:
    """Summaries of the sessions that processes run, oldest first.

    Raises:
        StorageError: if the files of one cannot be read.
    """
    return tuple(_summary(read_session(folder)) for folder in store.searches.folders() if folder.is_running)


def session_document(store: Store, text: str | None = None) -> SessionDocument:
    """Describe a session, found as by `SearchSessions.find`.

    Raises:
        StorageError: if no session or several match, or its files cannot be read.
    """
    return describe_session(store.home, read_session(store.searches.find(text)))


def describe_session(home: Home, recorded: RecordedSession) -> SessionDocument:
    """Describe a session that was read."""
    summary, session, spec = _summary(recorded), recorded.session, recorded.session.spec
    return SessionDocument(
        summary=summary,
        sentence=_sentence(recorded.lines),
        seconds_left=_seconds_left(recorded) if summary.state == "running" else None,
        windows=SessionWindows(
            validation_from=spec.validation_from,
            sealed_from=spec.sealed_from,
            n_folds=spec.n_folds,
            purge_size=spec.base.splitter.purge_size,
        ),
        n_lines=dict(Counter(line.event for line in recorded.lines)),
        notes=session_notes(recorded),
        symbols=session.symbols,
        handed_on=path.stem if (path := handed_on(home, session.session_id)) else None,
        spec=spec,
        folder=recorded.folder.path,
        trials=tuple(
            SessionTrial.of(after, trial=view.number, sharpe=view.sharpe, best_sharpe=after.sharpe_of(after.best))
            for view, after in ((view, view.after) for view in trial_views(recorded.lines))
        ),
    )


def report_document(store: Store, text: str | None = None) -> ReportDocument:
    """Return a session's report, found as by `SearchSessions.find`, and write its files where they are out of date.

    Raises:
        StorageError: if no session or several match, or its files cannot be read.
    """
    recorded = read_session(store.searches.find(text))
    folder, is_running = recorded.folder, recorded.folder.is_running
    markdown = session_report(recorded.session, recorded.lines, is_running=is_running)
    if not folder.report.exists() or folder.report.read_text() != markdown:
        write_report(folder, recorded.session, recorded.lines, is_running=is_running)
    return ReportDocument(
        session_id=folder.session_id,
        path=folder.report,
        picture=folder.picture if folder.picture.exists() else None,
        markdown=markdown,
    )


def session_notes(recorded: RecordedSession) -> tuple[str, ...]:
    """Notes about what was left out of a journal."""
    if not recorded.has_torn_line:
        return ()
    return (f"line {len(recorded.lines) + 1} of the journal is incomplete and left out",)


def journal_rows(recorded: RecordedSession) -> list[JournalRow]:
    """Rows of the lines of a journal."""
    base = next((line for line in recorded.lines if isinstance(line, BaseJudged)), None)
    return [_journal_row(base, *step) for step in recorded_states(recorded.lines)] if base else []


def _activity(recorded: RecordedSession) -> Activity:
    if is_closed(recorded.lines):
        return "finished"
    return "running" if recorded.folder.is_running else "stopped"


def _summary(recorded: RecordedSession) -> SessionSummary:
    session, lines = recorded.session, recorded.lines
    state = recorded_state(lines)
    best = state.best if state else None
    return SessionSummary(
        session_id=session.session_id,
        state=_activity(recorded),
        outcome=next((line.outcome for line in lines if isinstance(line, SessionClosed)), None),
        mode=session.spec.eval_mode,
        source=session.spec.base.market.source,
        n_symbols=len(session.symbols),
        n_trials=len(state.trials) if state else 0,
        budget=session.spec.budget,
        n_known=sum(isinstance(line, TrialJudged) and line.status == "known" for line in lines),
        base_sharpe=state.base.sharpe if state else None,
        best_sharpe=state.sharpe_of(best) if state else None,
        standing=best.standing if best else None,
        seconds=work_seconds(lines),
        started_at=session.created_at,
        goal=session.spec.goal,
    )


def _sentence(lines: Sequence[Line]) -> str:
    verdict = next((line for line in lines if isinstance(line, SessionClosed)), None)
    state = recorded_state(lines)
    if verdict:
        return verdict.sentence
    return format_progress(state) if state else "The base is not judged yet."


def _seconds_left(recorded: RecordedSession) -> float | None:
    """Estimate the time to the last trial from the work so far, with all workers busy; None before the first trial."""
    lines, spec = recorded.lines, recorded.session.spec
    state = recorded_state(lines)
    if state is None or not state.trials:
        return None
    limits = []
    if spec.budget is not None:
        work = sum(line.seconds for line in lines if not isinstance(line, BaseJudged))
        limits.append((spec.budget - len(state.trials)) * work / len(state.trials) / spec.workers)
    if spec.max_seconds is not None:
        limits.append(spec.max_seconds - sum(line.seconds for line in lines) / spec.workers)
    return max(0.0, min(limits))


def _journal_row(base: BaseJudged, line: Line, state: SearchState) -> JournalRow:
    fields: dict[str, Any] = {"event": line.event, "seconds": line.seconds}
    match line:
        case BaseJudged():
            sharpes = ", ".join(map(format_sharpe, line.sharpes))
            fields |= {"sharpe": state.base.sharpe, "message": f"Sharpe ratios by seed: {sharpes}"}
        case TrialJudged():
            names = ("proposal", "trial", "status", "standing", "sharpe", "bar", "clips", "snaps", "message")
            fields |= {name: getattr(line, name) for name in names} | _lead_fields(line.lead)
            fields["changed"] = changed_values(line.knobs, base.knobs)
        case ModelAsked() | SessionSummarized():
            fields |= _model_fields(base, line)
        case TrialRerun():
            fields |= {name: getattr(line, name) for name in ("trial", "standing", "bar")} | _lead_fields(line.lead)
            fields |= {"sharpe": state.sharpe_of(state.trials[line.spec_hash]), "message": format_rerun(line)}
        case LookOpened():
            fields |= {"trial": line.trial, "message": f"look {line.look} at the sealed window"}
        case SessionClosed():
            fields |= {"trial": line.trial, "message": line.sentence} | _lead_fields(line.over_base)
    return JournalRow.model_validate(fields)


def _model_fields(base: BaseJudged, line: ModelAsked | SessionSummarized) -> dict[str, Any]:
    if isinstance(line, SessionSummarized):
        return {"message": line.message or line.paragraph}
    changed = changed_values(line.proposed, base.knobs)
    return {
        "proposal": line.proposal,
        "status": line.outcome,
        "message": line.message or line.reason,
        "changed": changed,
    }


def _lead_fields(lead: Lead | None) -> dict[str, float]:
    return {} if lead is None else {"lead": lead.difference, "t": lead.t}
