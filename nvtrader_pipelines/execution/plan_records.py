"""What became of every plan: read from the audit's events, in the order they were appended."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Literal

from nvtrader_pipelines.execution.audit import AuditEvent
from nvtrader_pipelines.execution.plan import Finding, RebalancePlan, waits

PlanStatus = Literal[
    "constructed",  # compliance has not seen it
    "blocked",  # a hard finding
    "waiting",  # soft findings that nobody has acknowledged
    "cleared",  # no finding that stops it
    "approved",  # soft findings acknowledged
    "overridden",  # a person holds instead
    "rejected",  # a person refused it
    "cancelled",  # its fill session passed, the switch stopped it before its first order, or nothing of it was filled
    "placed",  # orders are at the broker
    "filled",  # every placed order is filled or cancelled, and something was filled
]
TO_BE_TRADED = frozenset({"cleared", "approved", "placed"})  # statuses whose orders may (still) be placed
_SAID: dict[str, PlanStatus] = {"approved": "approved", "overridden": "overridden", "rejected": "rejected"}


@dataclass(frozen=True)
class PlanRecord:
    """A plan with what was found and decided since."""

    plan: RebalancePlan
    constructed_at: datetime
    status: PlanStatus = "constructed"
    findings: tuple[Finding, ...] = ()
    cleared_at: datetime | None = None  # when compliance looked at it, whatever it found
    decision: PlanStatus | None = None  # what a person said of it, or the replay
    decided_by: str | None = None  # who approved, overrode or rejected it
    decided_at: datetime | None = None
    reason: str = ""  # of the last decision, block or cancellation
    placed: frozenset[str] = frozenset()  # orders at the broker
    settled: frozenset[str] = frozenset()  # of those, filled whole or cancelled
    filled: frozenset[str] = frozenset()  # of those, filled whole or in part


def plan_records(events: Iterable[AuditEvent]) -> dict[str, PlanRecord]:
    """Every constructed plan by its id, oldest first.

    Raises:
        pydantic.ValidationError: if an event's detail is not what its kind must carry.
    """
    records: dict[str, PlanRecord] = {}
    for event in events:
        if event.kind == "constructed" and event.plan_id is not None:
            plan = RebalancePlan.model_validate(event.detail["plan"])
            records.setdefault(event.plan_id, PlanRecord(plan, event.at))
        elif event.plan_id in records:
            records[event.plan_id] = _after(records[event.plan_id], event)
    return records


def _after(record: PlanRecord, event: AuditEvent) -> PlanRecord:
    """The record once one more event of its plan is known."""
    if event.kind in {"cleared", "blocked"}:
        findings = tuple(Finding.model_validate(each) for each in event.detail["findings"])
        status = "blocked" if event.kind == "blocked" else "waiting" if waits(findings) else "cleared"
        return replace(record, status=status, findings=findings, cleared_at=event.at, reason=event.reason)
    if event.kind in _SAID:
        said = _SAID[event.kind]
        return replace(
            record, status=said, decision=said, decided_by=event.by, decided_at=event.at, reason=event.reason
        )
    if event.kind == "cancelled" and event.order_id is None:
        held = record.status in {"overridden", "rejected"}  # whatever is cancelled after it, a person decided
        return record if held else replace(record, status="cancelled", reason=event.reason)
    return _after_order(record, event) if event.order_id is not None else record


def _after_order(record: PlanRecord, event: AuditEvent) -> PlanRecord:
    placed, settled, filled, order = record.placed, record.settled, record.filled, frozenset({event.order_id or ""})
    if event.kind == "placed":
        placed = placed | order
    if event.kind == "filled":
        filled = filled | order
    if event.kind == "cancelled" or (event.kind == "filled" and event.detail["fill"]["complete"]):
        settled = settled | order
    record = replace(record, placed=placed, settled=settled, filled=filled)
    if not placed:
        return record
    if not placed <= settled:
        return replace(record, status="placed")
    return replace(record, status="filled") if filled else replace(record, status="cancelled", reason=event.reason)
