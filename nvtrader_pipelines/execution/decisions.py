"""Decisions of people: approve, override or reject a plan, once and in time; reset an account."""

from collections.abc import Sequence
from datetime import date, datetime, time, timedelta
from typing import Literal

from nvtrader_pipelines.execution.audit import AuditEvent, EventDetails, event_id, plan_event
from nvtrader_pipelines.execution.book import BookedOrder
from nvtrader_pipelines.execution.errors import ExecutionError
from nvtrader_pipelines.execution.plan_records import PlanRecord
from nvtrader_pipelines.market.calendar import EXCHANGE_TIME, sessions

OPENS_AT = time(9, 30)
PlanDecision = Literal["approved", "overridden", "rejected"]
DECIDABLE = {"approved": {"waiting"}, "overridden": {"waiting", "cleared"}, "rejected": {"waiting", "cleared"}}
STATUS_REASONS = {
    "constructed": "compliance has not checked it yet",
    "blocked": "compliance blocks it, which no approval overrules",
    "cleared": "it has no findings to approve; its orders are placed without approval",
    "cancelled": "it was cancelled",
    "placed": "its orders are at the broker",
    "filled": "its orders are filled",
}


def next_open(session: date) -> datetime:
    """Time of the exchange's opening in the next session."""
    following = sessions(session + timedelta(days=1), session + timedelta(days=14))[0].item()
    return datetime.combine(following, OPENS_AT, EXCHANGE_TIME)


def require_no_orders(plan_id: str, booked: Sequence[BookedOrder]) -> None:
    """Raise if orders of the plan are open: an interrupted step may have placed some at the broker.

    Raises:
        ExecutionError: with the names of the open orders.
    """
    waiting = [each.order.symbol for each in booked if each.status == "accepted"]
    if waiting:
        raise ExecutionError(
            f"a plan must be decided on before its orders are placed, but those of plan {plan_id} for "
            f"{', '.join(waiting)} may be at the broker; trade the account to finish them, or halt to cancel them"
        )


def record_decision(
    record: PlanRecord, decision: PlanDecision, settled_at: date, author: tuple[str, str], at: datetime
) -> AuditEvent:
    """Make the event of a decision on a plan; in a replay it holds when the fill session began.

    The account was last settled at `settled_at`; the author is the person and the reason.

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
    begins = next_open(plan.session)
    if record.constructed_at < begins <= at:
        raise ExecutionError(
            f"plan {plan.plan_id} cannot be {decision} after the open of its fill session, at "
            f"{begins:%Y-%m-%d %H:%M %Z}: prices of the session are known by now; wait for the next plan"
        )
    if decision != "approved" and not reason.strip():
        raise ExecutionError(
            f"a plan must be {decision} with a reason, which the audit records, but has none; give one"
        )
    detail = {"fill_session_began": begins.isoformat()} if begins <= at else {}
    return plan_event(decision, plan, at, by, EventDetails(reason=reason, detail=detail))


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
