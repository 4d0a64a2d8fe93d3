"""Audit events of the trading loop, appended once and never changed, and the state of trading that they set."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import Annotated, Any, Literal, Protocol, Self

from pydantic import AwareDatetime, ConfigDict, Field, model_validator

from nvtrader_pipelines.components.document import Document
from nvtrader_pipelines.components.text import ID_LENGTH
from nvtrader_pipelines.execution.plan import RebalancePlan

EventKind = Literal[
    "proposed",
    "constructed",
    "cleared",
    "blocked",
    "approved",
    "overridden",
    "rejected",
    "skipped",  # no judgement of the plan
    "equal",  # the plan is as good as the holdings
    "placed",
    "filled",
    "cancelled",
    "accepted",
    "halted",
    "reducing",
    "resumed",
    "started",  # of a bot, by a person
    "activated",
    "promoted",  # an activation, as recorded by earlier versions
    "reset",
    "NewBest",  # of a search session
    "PolicyRetrained",  # policies handed on as a run, for the gate to judge
    "called",  # a tool that writes or trades, by an assistant
]

State = Literal["active", "reducing", "halted"]


class TradingState(Document):
    """State of trading: active, reducing (no position grows) or halted (no order is placed)."""

    state: State = "active"
    by: str = ""  # who set it; empty while active
    reason: str = ""  # a sentence; empty while active

    @property
    def halt_reason(self) -> str | None:
        """Why no order is placed; None if orders are."""
        return self.reason if self.state == "halted" else None

    @property
    def reduce_reason(self) -> str | None:
        """Why no position may grow; None if positions may, or no order is placed."""
        return self.reason if self.state == "reducing" else None


STRICTNESS: Mapping[State, int] = {"active": 0, "reducing": 1, "halted": 2}


def strictest_state(states: Sequence[TradingState]) -> TradingState:
    """First of the strictest states."""
    return max(states, key=lambda trading: STRICTNESS[trading.state])


REQUIRED_DETAIL: Mapping[EventKind, str] = {  # key of the detail of an event, by kind
    "constructed": "plan",  # RebalancePlan
    "cleared": "findings",  # list of Finding
    "blocked": "findings",
    "placed": "order",  # Order
    "filled": "fill",  # Fill
    "accepted": "differences",  # list of sentences
}


class AuditEvent(Document):
    """Audit event, with the ids of its plan, policy, run, spec and data."""

    # without `constants`, a non-finite detail would be stored as null; with it, the log raises
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, ser_json_inf_nan="constants")
    event_id: Annotated[str, Field(pattern=r"^[0-9a-f]{16}$")]  # hash of its identity: a retry gives the same id
    kind: EventKind
    at: AwareDatetime  # UTC
    by: str  # a person, or the component that acted
    account: str | None = None
    session: date | None = None
    plan_id: str | None = None
    order_id: str | None = None
    symbol: str | None = None
    policy: str | None = None  # its name in the evaluation
    run_id: str | None = None
    spec_hash: str | None = None
    snapshot_ids: Mapping[str, int] = Field(default_factory=dict)  # of the decision's panel
    reason: str = ""
    detail: Mapping[str, Any] = Field(default_factory=dict)  # JSON

    @model_validator(mode="after")
    def _require_detail(self) -> Self:
        key = REQUIRED_DETAIL.get(self.kind)
        if key is not None and key not in self.detail:
            raise ValueError(f"the detail of an event {self.kind} needs {key!r}, but has {sorted(self.detail)}")
        return self


def event_id(kind: EventKind, *parts: object) -> str:
    """Id of an event: a hash of its kind and of the parts that identify it within the kind."""
    return hashlib.sha256("|".join((kind, *map(str, parts))).encode()).hexdigest()[:ID_LENGTH]


@dataclass(frozen=True)
class EventDetails:
    """Fields of a plan's event beside the plan's ids.

    The detail is JSON with the key that `REQUIRED_DETAIL` names for the kind. The event of an order that was cancelled
    before it was placed also holds `order`; that of a placed order may hold `broker_order_id`.
    """

    order_id: str | None = None
    symbol: str | None = None
    session: date | None = None  # of the fill; None: that of the plan
    reason: str = ""
    detail: Mapping[str, Any] = field(default_factory=dict)


def plan_event(
    kind: EventKind, plan: RebalancePlan, at: datetime, by: str, details: EventDetails | None = None
) -> AuditEvent:
    """Make the event of a plan or of one of its orders; each has at most one event per kind."""
    details = details or EventDetails()
    return AuditEvent(
        event_id=event_id(kind, plan.plan_id, details.order_id or ""),
        kind=kind,
        at=at,
        by=by,
        account=plan.account,
        session=details.session or plan.session,
        plan_id=plan.plan_id,
        order_id=details.order_id,
        symbol=details.symbol,
        policy=plan.policy,
        run_id=plan.run_id,
        spec_hash=plan.spec_hash,
        snapshot_ids=plan.snapshot_ids,
        reason=details.reason,
        detail=details.detail,
    )


class AuditLog(Protocol):
    """Append-only log of events, durable and atomic per call."""

    def append(self, events: Sequence[AuditEvent]) -> None:
        """Append events durably; events with a known id are ignored."""
        ...

    def events(self, account: str | None = None) -> Sequence[AuditEvent]:
        """Return the events of one account, or of all, since its last reset, in the order of appending."""
        ...
