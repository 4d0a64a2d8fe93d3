"""Search session that runs, else the newest: state, trials and their chart."""

from collections.abc import Mapping, Sequence
from typing import Any

from nvtrader_pipelines.research.journal import BaseJudged, Line, TrialJudged
from nvtrader_pipelines.research.recorded_session import RecordedSession, read_session, recorded_state, recorded_states
from nvtrader_pipelines.research.verdict import SearchState, SearchTrial, Standing
from nvtrader_pipelines.service.api.context import Context
from nvtrader_pipelines.service.api.page.content import Content, Series, render
from nvtrader_pipelines.service.documents.search_facts import SessionDocument, describe_session

LEVEL = 0.025  # of each side of an interval
N_TRIALS = 14  # rows
N_KNOBS = 3  # of a row before it is opened


def read_search(shared: Context) -> Content:
    """Read the session."""
    folders = shared.store.searches.folders()
    values = {"document": None, "state": None, "best": None, "bar": None, "counts": {}, "n_sessions": len(folders)}
    if not folders:
        return _content(values, [], Series(""), {"trials": "", "said_search": ""})
    recorded = read_session(shared.store.searches.find())
    state = recorded_state(recorded.lines)
    document = describe_session(shared.home, recorded)
    rows = trial_rows(state, recorded.lines) if state else []
    best = next((row for row in rows if state and state.best and row["key"] == state.best.key), None)
    lead = state.best.current_lead if state and state.best else None
    values |= {
        "document": document,
        "state": state,
        "best": best,
        "bar": state and lead and state.base.sharpe + state.bar * lead.standard_error,
        "counts": _counts(recorded),
    }
    facts = {
        "base": state.base.sharpe if state else None,
        "budget": document.spec.budget,
        "outcome": document.summary.outcome,
    }
    n_done, budget = document.summary.n_trials, document.spec.budget
    texts = {"trials": f"{n_done}/{budget}" if budget else str(n_done), "said_search": _said(document, best)}
    return _content(values, rows, Series(document.summary.session_id, tuple(map(_point, rows)), facts), texts)


def _content(
    values: dict[str, Any], rows: Sequence[dict[str, Any]], series: Series, texts: Mapping[str, str]
) -> Content:
    best = values["best"]
    shown = [*([best] if best else []), *(row for row in reversed(rows) if row is not best)][:N_TRIALS]
    values |= {"rows": shown, "n_rows": len(rows), "n_knobs": N_KNOBS}
    parts = {name: render(name, **values) for name in ("search_head", "search", "trials", "search_progress")}
    return Content(parts, {"trials": series}, texts)


def _said(document: SessionDocument, best: Mapping[str, Any] | None) -> str:
    """Sentence that is read aloud when it changes: a new best, or the end."""
    summary = document.summary
    if summary.state != "running":
        return f"The search has ended: {summary.outcome or summary.state}."
    return f"New best: trial {best['trial']}, Sharpe ratio {best['sharpe']:.2f}." if best else ""


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
        "values": {k: v if isinstance(v, int) else float(f"{v:.4g}") for k, v in line.knobs.items()},
        "luck": best and best.current_lead and state.base.sharpe + state_then.bar * best.current_lead.standard_error,
        "best": best and best.current_lead and state.base.sharpe + best.current_lead.difference,
    }


def _point(row: dict[str, Any]) -> dict[str, Any]:
    names = ("sharpe", "sharpe_low", "sharpe_high", "standing", "is_kept", "luck", "best", "max_drawdown")
    return {"id": row["trial"], "trial": row["trial"], "knobs": row["values"], **{name: row[name] for name in names}}


def _counts(recorded: RecordedSession) -> dict[str, int]:
    trials = [line for line in recorded.lines if isinstance(line, TrialJudged)]
    counts = {status: sum(line.status == status for line in trials) for status in ("pruned", "failed", "infeasible")}
    counts["clipped"] = sum(bool(line.clips) for line in trials)
    return {name: count for name, count in counts.items() if count}
