"""Search session that runs, else the newest: state, trials and their chart."""

from collections.abc import Mapping, Sequence
from typing import Any

from nvtrader_pipelines.research.journal import TrialJudged
from nvtrader_pipelines.research.recorded_session import (
    RecordedSession,
    TrialView,
    read_session,
    recorded_state,
    trial_views,
)
from nvtrader_pipelines.research.session_documents import SessionDocument, describe_session
from nvtrader_pipelines.research.verdict import Standing
from nvtrader_pipelines.service.api.context import Context
from nvtrader_pipelines.service.api.page.content import Content, Series, render

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
    rows = [_row(trial, document.summary.goal) for trial in trial_views(recorded.lines)]
    best = next((row for row in rows if row["is_best"]), None)
    values |= {
        "document": document,
        "state": state,
        "best": best,
        "bar": state and state.luck_sharpe,
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


def _row(trial: TrialView, goal: str) -> dict[str, Any]:
    """Row of a trial, with what was known after it."""
    line, standing, after, base = trial.line, trial.trial.standing, trial.after, trial.base.knobs
    (low, high), (sharpe_low, sharpe_high) = trial.lead_interval, trial.sharpe_interval
    changed = trial.changed.items() if line.knobs else ()
    return {
        "trial": trial.number,
        "is_best": trial.is_best,
        "standing": line.status if line.status in {"infeasible", "failed"} else standing.value,
        "is_kept": standing is Standing.KEPT,
        "sharpe": trial.sharpe,
        "sharpe_low": sharpe_low,
        "sharpe_high": sharpe_high,
        "lead": trial.lead and trial.lead.difference,
        "lead_low": low,
        "lead_high": high,
        "max_drawdown": line.max_drawdown,
        "seconds": line.seconds,
        "message": line.message,
        "reason": line.reason,
        "goal": goal if line.cites_goal else "",
        "n_clips": len(line.clips),
        "knobs": [(name, (base[name], value)) for name, value in changed],
        "values": {k: v if isinstance(v, int) else float(f"{v:.4g}") for k, v in line.knobs.items()},
        "luck": after.luck_sharpe,
        "best": after.sharpe_of(after.best),
    }


def _point(row: dict[str, Any]) -> dict[str, Any]:
    names = ("sharpe", "sharpe_low", "sharpe_high", "standing", "is_kept", "luck", "best", "max_drawdown")
    return {"id": row["trial"], "trial": row["trial"], "knobs": row["values"], **{name: row[name] for name in names}}


def _counts(recorded: RecordedSession) -> dict[str, int]:
    trials = [line for line in recorded.lines if isinstance(line, TrialJudged)]
    counts = {status: sum(line.status == status for line in trials) for status in ("pruned", "failed", "infeasible")}
    counts["clipped"] = sum(bool(line.clips) for line in trials)
    return {name: count for name, count in counts.items() if count}
