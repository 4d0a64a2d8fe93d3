"""The audit: every event of the loop is one row, appended once and never changed."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import Annotated, Any, Literal, Protocol, Self

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, model_validator

from nvtrader_pipelines.components.ids import ID_LENGTH
from nvtrader_pipelines.execution.plan import RebalancePlan

EventKind = Literal[
    "proposed",
    "constructed",
    "cleared",
    "blocked",
    "approved",
    "overridden",
    "rejected",
    "placed",
    "filled",
    "cancelled",
    "accepted",
    "halted",
    "resumed",
    "promoted",
]

CARRIES: Mapping[EventKind, str] = {  # what the detail of an event must hold, by kind
    "constructed": "plan",  # RebalancePlan
    "cleared": "findings",  # list of Finding
    "blocked": "findings",
    "placed": "order",  # Order
    "filled": "fill",  # Fill
    "accepted": "differences",  # list of sentences
}


class AuditEvent(BaseModel):
    """One event, with the ids that lead from it to its plan, policy, run, spec and data."""

    # without the last, a detail that is not finite would be kept as null; what keeps events refuses it
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, ser_json_inf_nan="constants")
    event_id: Annotated[str, Field(pattern=r"^[0-9a-f]{16}$")]  # of what makes it the event it is: a retry finds it
    kind: EventKind
    at: AwareDatetime  # UTC
    by: str  # who: a person, or the component that acted
    account: str | None = None
    session: date | None = None
    plan_id: str | None = None
    order_id: str | None = None
    symbol: str | None = None
    policy: str | None = None  # the name its account had in the evaluation
    run_id: str | None = None
    spec_hash: str | None = None
    snapshot_ids: Mapping[str, int] = Field(default_factory=dict)  # of the panel decided on
    reason: str = ""
    detail: Mapping[str, Any] = Field(default_factory=dict)  # JSON

    @model_validator(mode="after")
    def _carries_what_its_kind_must(self) -> Self:
        needed = CARRIES.get(self.kind)
        if needed is not None and needed not in self.detail:
            raise ValueError(f"an event {self.kind} must carry {needed!r} in its detail, but has {sorted(self.detail)}")
        return self


def event_id(kind: EventKind, *parts: object) -> str:
    """The id of an event, from its kind and what tells it from others of that kind."""
    return hashlib.sha256("|".join((kind, *map(str, parts))).encode()).hexdigest()[:ID_LENGTH]


@dataclass(frozen=True)
class About:
    """What an event of a plan tells besides the plan's own ids.

    The detail is JSON and holds what `CARRIES` names for the kind; that of an order which was cancelled before it was
    placed holds `order`, that of a placed one may hold `broker_order_id`.
    """

    order_id: str | None = None
    symbol: str | None = None
    session: date | None = None  # of the fill; None: the plan's own
    reason: str = ""
    detail: Mapping[str, Any] = field(default_factory=dict)


def plan_event(
    kind: EventKind, plan: RebalancePlan, at: datetime, by: str, about: About | None = None, *parts: object
) -> AuditEvent:
    """An event of a plan, or of one of its orders: one of a kind, unless further parts tell it from others."""
    about = about or About()
    return AuditEvent(
        event_id=event_id(kind, plan.plan_id, about.order_id or "", *parts),
        kind=kind,
        at=at,
        by=by,
        account=plan.account,
        session=about.session or plan.session,
        plan_id=plan.plan_id,
        order_id=about.order_id,
        symbol=about.symbol,
        policy=plan.policy,
        run_id=plan.run_id,
        spec_hash=plan.spec_hash,
        snapshot_ids=plan.snapshot_ids,
        reason=about.reason,
        detail=about.detail,
    )


class AuditLog(Protocol):
    """Where events are kept; what was appended is there after a kill, whole."""

    def append(self, events: Sequence[AuditEvent]) -> None:
        """Keep events, durably when it returns; those whose id is kept already are left as they are."""
        ...

    def events(self, account: str | None = None) -> Sequence[AuditEvent]:
        """Every event in the order they were appended, of one account or of all."""
        ...

    def has(self, event: str) -> bool:
        """Whether an event of this id is kept."""
        ...
