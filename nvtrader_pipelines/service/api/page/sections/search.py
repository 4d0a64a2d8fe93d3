"""Search session that runs, else the newest: state, trials and their chart."""

from collections.abc import Sequence
from typing import Any

from nvtrader_pipelines.research.journal import BaseJudged, Line, TrialJudged
from nvtrader_pipelines.research.recorded_session import RecordedSession, read_session, recorded_state, recorded_states
from nvtrader_pipelines.research.verdict import SearchState, SearchTrial, Standing
from nvtrader_pipelines.service.api.context import Context
from nvtrader_pipelines.service.api.page.content import Content, Series, render
from nvtrader_pipelines.service.documents.search_facts import SessionDocument, find_session, session_document
from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.research_files import session_folders

LEVEL = 0.025  # of each side of an interval
N_TRIALS = 14  # rows
N_KNOBS = 3  # of a row before it is opened


def read_search(shared: Context) -> Content:
    """Read the session."""
    folders = session_folders(shared.home)
    if not folders:
        return _content(n_sessions=0)
    try:
        recorded = read_session(find_session(shared.home))
        document = session_document(shared.home, recorded.folder.session_id)
    except StorageError as error:
        return _content(n_sessions=len(folders), problem=str(error))
    lines, spec = recorded.lines, document.spec
    state = recorded_state(lines)
    rows = trial_rows(state, lines) if state else []
    best = state.best if state else None
    facts = {"base": state.base.sharpe if state else None, "budget": spec.budget}
    n_done = document.summary.n_trials
    return _content(
        n_sessions=len(folders),
        document=document,
        best=best and next(row for row in rows if row["key"] == best.key),
        bar=state and best and best.current_lead and state.base.sharpe + state.bar * best.current_lead.standard_error,
        state=state,
        rows=rows,
        counts=_counts(recorded),
        series=Series(document.summary.session_id, tuple(map(_point, rows)), facts),
        text=f"{n_done}/{spec.budget}" if spec.budget else str(n_done),
        said=_said(document, state),
    )


def _content(
    *,
    n_sessions: int,
    document: SessionDocument | None = None,
    rows: Sequence[dict[str, Any]] = (),
    series: Series | None = None,
    text: str = "",
    said: str = "",
    **values: Any,
) -> Content:
    empty: dict[str, Any] = {"problem": "", "best": None, "bar": None, "state": None, "counts": {}}
    shown = {**empty, **values, "n_sessions": n_sessions, "document": document, "n_rows": len(rows), "n_knobs": N_KNOBS}
    best = shown["best"]
    newest = [row for row in reversed(rows) if row is not best]
    shown["rows"] = [*([best] if best else []), *newest][:N_TRIALS]
    parts = {name: render(name, **shown) for name in ("search_head", "search", "trials", "search_progress")}
    return Content(parts, {"trials": series or Series("")}, {"trials": text, "said_search": said})


def _said(document: SessionDocument, state: SearchState | None) -> str:
    """Sentence that is read aloud when it changes: a new best, or the end."""
    summary = document.summary
    if summary.state != "running":
        return f"The search has ended: {summary.outcome or summary.state}."
    if state is None or state.best is None or summary.best_sharpe is None:
        return ""
    number = list(state.trials).index(state.best.key) + 1
    return f"New best: trial {number}, Sharpe ratio {summary.best_sharpe:.2f}."


def trial_rows(state: SearchState, lines: Sequence[Line]) -> list[dict[str, Any]]:
    """Rows of trials in order, with what was known after each."""
    base = next(line for line in lines if isinstance(line, BaseJudged))
    judged = {line.trial: line for line in lines if isinstance(line, TrialJudged) and line.status != "known"}
    after = {
        line.trial: state_then
        for line, state_then in recorded_states(lines)
        if isinstance(line, TrialJudged) and line.trial
    }
    return [
        _trial_row(state, base, judged[number], trial, after[number])
        for number, trial in enumerate(state.trials.values(), start=1)
    ]


def _trial_row(
    state: SearchState, base: BaseJudged, line: TrialJudged, trial: SearchTrial, state_then: SearchState
) -> dict[str, Any]:
    lead, best = trial.current_lead, state_then.best
    low, high = lead.interval(LEVEL) if lead else (None, None)
    changed = {name: (base.knobs[name], value) for name, value in line.knobs.items() if value != base.knobs[name]}
    return {
        "key": trial.key,
        "trial": line.trial,
        "standing": line.status if line.status in {"infeasible", "failed"} else trial.standing.value,
        "is_kept": trial.standing is Standing.KEPT,
        "sharpe": state.base.sharpe + lead.difference if lead else line.sharpe,
        "sharpe_low": None if low is None else state.base.sharpe + low,
        "sharpe_high": None if high is None else state.base.sharpe + high,
        "lead": lead and lead.difference,
        "lead_low": low,
        "lead_high": high,
        "max_drawdown": line.max_drawdown,
        "seconds": line.seconds,
        "message": line.message,
        "reason": line.reason,
        "n_clips": len(line.clips),
        "knobs": list(changed.items()),
        "luck": best and best.current_lead and state.base.sharpe + state_then.bar * best.current_lead.standard_error,
        "best": best and best.current_lead and state.base.sharpe + best.current_lead.difference,
    }


def _point(row: dict[str, Any]) -> dict[str, Any]:
    names = ("sharpe", "sharpe_low", "sharpe_high", "standing", "is_kept", "luck", "best", "max_drawdown")
    return {"id": row["trial"], "trial": row["trial"], **{name: row[name] for name in names}}


def _counts(recorded: RecordedSession) -> dict[str, int]:
    trials = [line for line in recorded.lines if isinstance(line, TrialJudged)]
    counts = {status: sum(line.status == status for line in trials) for status in ("pruned", "failed", "infeasible")}
    counts["clipped"] = sum(bool(line.clips) for line in trials)
    return {name: count for name, count in counts.items() if count}
