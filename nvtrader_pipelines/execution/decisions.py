"""Decisions of people: approve, override or reject a plan, once and in time, or judge nothing; reset an account."""

from collections.abc import Sequence
from datetime import date, datetime

from nvtrader_pipelines.execution.audit import AuditEvent, EventDetails, EventKind, event_id, plan_event
from nvtrader_pipelines.execution.book import BookedOrder
from nvtrader_pipelines.execution.errors import ExecutionError
from nvtrader_pipelines.execution.plan import Finding, RebalancePlan, block_reason, is_blocked
from nvtrader_pipelines.execution.plan_decision import DecisionEvent
from nvtrader_pipelines.execution.plan_records import PlanRecord
from nvtrader_pipelines.market.calendar import TradingCalendar

OPEN = {"waiting", "cleared"}
DECIDABLE: dict[DecisionEvent, set[str]] = {
    "approved": {"waiting"},
    "overridden": OPEN,
    "rejected": OPEN,
    "skipped": OPEN,
    "equal": OPEN,
}
EDITED = "edited"  # key of an override's detail: id of the plan with the weights of the person
STATUS_REASONS = {
    "constructed": "compliance has not checked it yet",
    "blocked": "compliance blocks it, which no approval overrules",
    "cleared": "it has no findings to approve; its orders are placed without approval",
    "cancelled": "it was cancelled",
    "placed": "its orders are at the broker",
    "filled": "its orders are filled",
}


def require_no_orders(plan_id: str, booked: Sequence[BookedOrder]) -> None:
    """Raise if orders of the plan are open: an interrupted step may have placed some at the broker.

    Raises:
        ExecutionError: with the names of the open orders.
    """
    waiting = [entry.order.symbol for entry in booked if entry.status == "accepted"]
    if waiting:
        raise ExecutionError(
            f"a plan must be decided on before its orders are placed, but those of plan {plan_id} for "
            f"{', '.join(waiting)} may be at the broker; trade the account to finish them, or halt to cancel them"
        )


def record_decision(
    record: PlanRecord,
    decision: DecisionEvent,
    settled_at: date,
    author: tuple[str, str],
    at: datetime,
    calendar: TradingCalendar,
) -> AuditEvent:
    """Make the event of a decision on a plan; where the fill session has begun, as in a replay, it says when.

    The account was last settled at `settled_at`; the author is the person and the reason. "Skipped" and "equal" judge
    nothing: the plan keeps its status.

    Raises:
        ExecutionError: if the plan can no longer be decided on in this way, or a reason is missing.
    """
    plan, (by, reason) = record.plan, author
    if record.decided_by is not None:
        raise ExecutionError(
            f"a plan can be decided on once, but {plan.plan_id} was {record.decision} by {record.decided_by} at "
            f"{record.decided_at}{_format_change(record)}; wait for the next plan"
        )
    if record.status not in DECIDABLE[decision]:
        raise ExecutionError(
            f"plan {plan.plan_id} cannot be {decision}: {STATUS_REASONS.get(record.status, record.status)}"
            f"{f' ({record.reason})' if record.reason else ''}"
        )
    if settled_at > plan.session:
        raise ExecutionError(
            f"plan {plan.plan_id} cannot be {decision}: it was decided at {plan.session}, and its fill session has "
            f"passed, as the account is settled at {settled_at}; wait for the next plan"
        )
    begins = calendar.decision_deadline(plan.session)
    if record.constructed_at < begins <= at:
        raise ExecutionError(
            f"plan {plan.plan_id} could be {decision} until {begins:%Y-%m-%d %H:%M %Z}, but prices of its fill session "
            "are known by now; wait for the next plan"
        )
    if decision in {"overridden", "rejected"} and not reason.strip():
        raise ExecutionError(
            f"a plan must be {decision} with a reason, which the audit records, but has none; give one"
        )
    began = begins <= max(at, record.constructed_at)  # a clock that was set back makes no foresight
    detail = {"fill_session_began": begins.isoformat()} if began else {}
    return plan_event(decision, plan, at, by, EventDetails(reason=reason, detail=detail))


def replacement_events(
    override: AuditEvent, edited: RebalancePlan, findings: Sequence[Finding]
) -> tuple[AuditEvent, ...]:
    """Make the events of an override with edited weights: the override first, then those of the edited plan.

    Raises:
        ExecutionError: if compliance blocks the edited plan.
    """
    if is_blocked(findings):
        raise ExecutionError(
            f"edited weights must pass compliance, but {block_reason(findings)}; change them, or reject plan "
            f"{edited.parent_id}"
        )
    replaced = override.model_copy(update={"detail": {**override.detail, EDITED: edited.plan_id}})
    details: dict[EventKind, EventDetails] = {
        "proposed": EventDetails(reason=override.reason),
        "constructed": EventDetails(detail={"plan": edited.model_dump(mode="json")}),
        "cleared": EventDetails(detail={"findings": [finding.model_dump(mode="json") for finding in findings]}),
    }
    return replaced, *(plan_event(kind, edited, override.at, override.by, item) for kind, item in details.items())


def _format_change(record: PlanRecord) -> str:
    """Format the change of a plan's status since the decision on it."""
    if record.status == record.decision:
        return ""
    why = f" ({record.reason})" if record.status == "cancelled" else ""  # else the reason is that of the decision
    return f", and since then {STATUS_REASONS[record.status]}{why}"


def reset_event(account: str, settled_at: date, author: tuple[str, str], at: datetime) -> AuditEvent:
    """Make the event of a person who empties a simulated account, last settled at `settled_at`.

    The author is the person and the reason.

    Raises:
        ExecutionError: if there is no reason.
    """
    by, reason = author
    if not reason.strip():
        raise ExecutionError("an account must be reset with a reason, which the audit records; give one")
    identity = event_id("reset", account, at.isoformat())
    return AuditEvent(event_id=identity, kind="reset", at=at, by=by, account=account, session=settled_at, reason=reason)
