"""Rows of sessions and their trials, which mirror the journals, and of calls of language models."""

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import uuid4

import polars as pl

from nvtrader_pipelines.llm.calls import Call
from nvtrader_pipelines.research.journal import (
    CALL_FIELDS,
    Line,
    ModelEvent,
    SessionClosed,
    TrialJudged,
    returns_name,
    work_seconds,
)
from nvtrader_pipelines.research.recorded_session import TrialView, best_view, recorded_state, trial_views
from nvtrader_pipelines.research.session_spec import Session
from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.research_files import SessionFolder
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.table import to_frame
from nvtrader_pipelines.storage.tables import LLM_CALLS, RESEARCH_SESSIONS, RESEARCH_TRIALS

Row = dict[str, Any]
TRIAL_COLUMNS = ("session_id", "trial_id", "spec_hash", "status", "sharpe", "max_drawdown", "finished_at")


def store_session(store: Store, session: Session, lines: Sequence[Line]) -> None:
    """Replace the rows of a session by those of its journal."""
    where = {"session_id": [session.session_id]}
    rows = [trial_row(session, trial) for trial in trial_views(lines)]
    store.tables.replace(RESEARCH_TRIALS, to_frame(RESEARCH_TRIALS, rows), where)
    calls = [line for line in lines if isinstance(line, ModelEvent) and line.digest]
    if calls:
        frame = to_frame(LLM_CALLS, [call_row(session, i, line) for i, line in enumerate(calls, start=1)])
        store.tables.replace(LLM_CALLS, frame, where)
    frame = to_frame(RESEARCH_SESSIONS, [session_row(session, lines)])
    store.tables.replace(RESEARCH_SESSIONS, frame, where)


def store_call(store: Store, call: Call, called_at: datetime) -> None:
    """Add the row of a model's call outside of sessions."""
    row = {**call.model_dump(), "call_id": uuid4().hex, "session_id": None, "called_at": called_at}
    store.tables.replace(LLM_CALLS, to_frame(LLM_CALLS, [row]), {"call_id": [row["call_id"]]})


def call_row(session: Session, number: int, line: ModelEvent) -> Row:
    """Row of a model's call in a session."""
    return {
        **line.model_dump(include=CALL_FIELDS),
        "call_id": f"{session.session_id}/{number}",
        "session_id": session.session_id,
        "purpose": line.prompt.partition("@")[0],
        "seconds": line.seconds,
        "problem": line.message,
        "called_at": line.finished_at,
    }


def session_row(session: Session, lines: Sequence[Line]) -> Row:
    """Row of a session."""
    spec, state, trials = session.spec, recorded_state(lines), trial_views(lines)
    best = best_view(trials)
    closed = next((line for line in lines if isinstance(line, SessionClosed)), None)
    return {
        "session_id": session.session_id,
        "goal": spec.goal,
        "mode": spec.eval_mode,
        "base": spec.base.name,
        "source": spec.base.market.source,
        "symbols": list(session.symbols),
        "proposer": spec.proposer.kind,
        "seed": spec.seed,
        "budget": spec.budget,
        "validation_from": spec.validation_from,
        "sealed_from": spec.sealed_from,
        "n_trials": len(trials),
        "n_known": sum(isinstance(line, TrialJudged) and line.status == "known" for line in lines),
        "base_sharpe": state.base.sharpe if state else None,
        "best_trial": best.number if best else None,
        "best_sharpe": best.sharpe if best else None,
        "outcome": str(closed.outcome) if closed else None,
        "look": closed.look if closed else None,
        "sentence": closed.sentence if closed else None,
        "created_at": session.created_at,
        "finished_at": closed.finished_at if closed else None,
        "seconds": work_seconds(lines),
    }


def trial_row(session: Session, trial: TrialView) -> Row:
    """Row of a trial; lead and standing are those of all its seeds once it is rerun."""
    line, rerun, lead = trial.line, trial.rerun, trial.lead
    last = rerun or line
    return {
        "session_id": session.session_id,
        "trial_id": trial.number,
        "proposal": line.proposal,
        "spec_hash": line.spec_hash,
        "mode": session.spec.eval_mode,
        "proposer": line.proposer,
        "reason": line.reason,
        "knobs": json.dumps(trial.knobs, sort_keys=True),
        "adjustments": json.dumps([adjustment.model_dump() for adjustment in (*line.clips, *line.snaps)]),
        "status": line.status,
        "message": (rerun and rerun.message) or line.message,
        "sharpe": line.sharpe,
        "fresh_sharpes": list(rerun.sharpes) if rerun and rerun.sharpes else None,
        "max_drawdown": line.max_drawdown,
        "lead": lead.difference if lead else None,
        "standard_error": lead.standard_error if lead else None,
        "t": lead.t if lead else None,
        "bar": last.bar,
        "n_configurations": line.n_configurations,
        "standing": last.standing,
        "seconds": line.seconds + (rerun.seconds if rerun else 0.0),
        "finished_at": last.finished_at,
    }


def search_trials(store: Store) -> pl.DataFrame:
    """Read the judged and pruned trials of all sessions: those that a search has chosen among.

    Returns:
        Columns of the trials; source, validation_from and sealed_from of their sessions; and net_returns per session of
        the validation by the first seed, null where pruned or no longer in the session's folder.
    """
    sessions = store.tables.read(RESEARCH_SESSIONS, columns=["session_id", "source", "validation_from", "sealed_from"])
    trials = store.tables.read(RESEARCH_TRIALS, {"status": ["judged", "pruned"]}, TRIAL_COLUMNS).join(
        sessions, on="session_id", maintain_order="left"
    )
    returns = [_net_returns(store, *names) for names in trials.select("session_id", "trial_id").iter_rows()]
    return trials.with_columns(net_returns=pl.Series(returns, dtype=pl.List(pl.Float64)))


def _net_returns(store: Store, session_id: str, trial: int) -> list[float] | None:
    try:
        return SessionFolder.of(store.home, session_id).read_returns(returns_name(trial))[0].tolist()
    except StorageError:
        return None
