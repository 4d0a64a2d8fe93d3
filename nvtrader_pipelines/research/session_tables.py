"""Rows of sessions and their trials, which mirror the journals, and of calls of language models."""

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import uuid4

from nvtrader_pipelines.llm.calls import Call
from nvtrader_pipelines.research.journal import (
    CALL_FIELDS,
    BaseJudged,
    Line,
    ModelEvent,
    SessionClosed,
    TrialJudged,
    TrialRerun,
    work_seconds,
)
from nvtrader_pipelines.research.recorded_session import recorded_state
from nvtrader_pipelines.research.session_spec import Session
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.table import to_frame
from nvtrader_pipelines.storage.tables import LLM_CALLS, RESEARCH_SESSIONS, RESEARCH_TRIALS

Row = dict[str, Any]


def store_session(store: Store, session: Session, lines: Sequence[Line]) -> None:
    """Replace the rows of a session by those of its journal."""
    where = {"session_id": [session.session_id]}
    reruns = {line.trial: line for line in lines if isinstance(line, TrialRerun)}
    trials = [line for line in lines if isinstance(line, TrialJudged) and line.status != "known"]
    rows = [trial_row(session, line, reruns.get(line.trial or 0)) for line in trials]
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
    spec, state = session.spec, recorded_state(lines)
    base = next((line for line in lines if isinstance(line, BaseJudged)), None)
    closed = next((line for line in lines if isinstance(line, SessionClosed)), None)
    trials = {line.spec_hash: line for line in lines if isinstance(line, TrialJudged) and line.status != "known"}
    best = trials[state.best.key] if state and state.best else None
    lead = state.best.current_lead if state and state.best else None
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
        "base_sharpe": sum(base.sharpes) / len(base.sharpes) if base else None,
        "best_trial": best.trial if best else None,
        "best_sharpe": state.base.sharpe + lead.difference if state and lead else None,
        "outcome": str(closed.outcome) if closed else None,
        "look": closed.look if closed else None,
        "sentence": closed.sentence if closed else None,
        "created_at": session.created_at,
        "finished_at": closed.finished_at if closed else None,
        "seconds": work_seconds(lines),
    }


def trial_row(session: Session, line: TrialJudged, rerun: TrialRerun | None) -> Row:
    """Row of a trial; lead and standing are those of all its seeds once it is rerun."""
    last = rerun or line
    lead = last.lead
    return {
        "session_id": session.session_id,
        "trial_id": line.trial,
        "proposal": line.proposal,
        "spec_hash": line.spec_hash,
        "mode": session.spec.eval_mode,
        "proposer": line.proposer,
        "reason": line.reason,
        "knobs": json.dumps(line.knobs or line.proposed, sort_keys=True),
        "adjustments": json.dumps([each.model_dump() for each in (*line.clips, *line.snaps)]),
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
