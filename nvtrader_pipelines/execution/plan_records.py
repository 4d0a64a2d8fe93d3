"""Current status of every plan, derived from the audit's events."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Literal

from nvtrader_pipelines.execution.audit import AuditEvent
from nvtrader_pipelines.execution.plan import Finding, RebalancePlan, needs_approval

PlanStatus = Literal[
    "constructed",  # not yet checked by compliance
    "blocked",  # by a hard finding
    "waiting",  # for a person to acknowledge soft findings
    "cleared",  # without hard or soft findings
    "approved",  # soft findings acknowledged
    "overridden",  # a person keeps the holdings, or trades weights of an own plan, instead
    "rejected",  # by a person
    "cancelled",  # its fill session passed, the switch stopped it before its first order, or nothing was filled
    "placed",  # orders are at the broker
    "filled",  # every placed order is filled or cancelled, and something was filled
]
PLACEABLE = frozenset({"cleared", "approved", "placed"})  # statuses whose orders may (still) be placed
_DECISIONS: dict[str, PlanStatus] = {"approved": "approved", "overridden": "overridden", "rejected": "rejected"}


@dataclass(frozen=True)
class PlanRecord:
    """Plan with its status, findings, decision and orders."""

    plan: RebalancePlan
    constructed_at: datetime
    status: PlanStatus = "constructed"
    findings: tuple[Finding, ...] = ()
    cleared_at: datetime | None = None  # time of the compliance check, also of a blocked plan
    decision: PlanStatus | None = None  # of a person, or of the replay
    decided_by: str | None = None  # who approved, overrode or rejected it
    decided_at: datetime | None = None
    reason: str = ""  # of the last decision, block or cancellation
    placed: frozenset[str] = frozenset()  # orders at the broker
    settled: frozenset[str] = frozenset()  # of those, completely filled or cancelled
    filled: frozenset[str] = frozenset()  # of those, completely or partly filled
    constructed_by: str | None = None  # component, or the person who edited the parent


def plan_records(events: Iterable[AuditEvent]) -> dict[str, PlanRecord]:
    """Every constructed plan by its id, oldest first.

    Raises:
        pydantic.ValidationError: if the detail of an event is invalid.
    """
    records: dict[str, PlanRecord] = {}
    for event in events:
        if event.kind == "constructed" and event.plan_id is not None:
            plan = RebalancePlan.model_validate(event.detail["plan"])
            records.setdefault(event.plan_id, PlanRecord(plan, event.at, constructed_by=event.by))
        elif event.plan_id in records:
            records[event.plan_id] = _after(records[event.plan_id], event)
    return records


def is_first_plan(plan: RebalancePlan, records: Iterable[PlanRecord]) -> bool:
    """Whether no plan of the same policy and run has been filled among the records of an account."""
    own = (plan.run_id, plan.policy)
    return not any(record.filled and (record.plan.run_id, record.plan.policy) == own for record in records)


def halted_session_events(events: Iterable[AuditEvent], records: Iterable[PlanRecord]) -> list[AuditEvent]:
    """Events of sessions that the kill switch left without a plan."""
    decided = {(record.plan.account, record.plan.session) for record in records}
    return [
        event
        for event in events
        if event.kind == "halted" and event.session and (event.account, event.session) not in decided
    ]


def _after(record: PlanRecord, event: AuditEvent) -> PlanRecord:
    """Record of a plan after one more event."""
    if event.kind in {"cleared", "blocked"}:
        findings = tuple(Finding.model_validate(content) for content in event.detail["findings"])
        status = "blocked" if event.kind == "blocked" else "waiting" if needs_approval(findings) else "cleared"
        return replace(record, status=status, findings=findings, cleared_at=event.at, reason=event.reason)
    if event.kind in _DECISIONS:
        decision = _DECISIONS[event.kind]
        return replace(
            record, status=decision, decision=decision, decided_by=event.by, decided_at=event.at, reason=event.reason
        )
    if event.kind == "cancelled" and event.order_id is None:
        is_final = record.status in {"overridden", "rejected"}  # a person's decision outranks a later cancellation
        return record if is_final else replace(record, status="cancelled", reason=event.reason)
    return _after_order(record, event) if event.order_id is not None else record


def _after_order(record: PlanRecord, event: AuditEvent) -> PlanRecord:
    placed, settled, filled, order = record.placed, record.settled, record.filled, frozenset({event.order_id or ""})
    status, reason = record.status, record.reason
    if event.kind == "placed":
        placed = placed | order
    if event.kind == "filled":
        filled = filled | order
    if event.kind == "cancelled" or (event.kind == "filled" and event.detail["fill"]["complete"]):
        settled = settled | order
    if placed and not placed <= settled:
        status = "placed"
    elif placed and filled:
        status = "filled"
    elif placed:
        status, reason = "cancelled", event.reason
    return replace(record, placed=placed, settled=settled, filled=filled, status=status, reason=reason)
