"""What a person says of a plan: approve, override or reject, each plan once and in time."""

from collections.abc import Sequence
from datetime import date, datetime, time, timedelta
from typing import Literal

from nvtrader_pipelines.execution.audit import About, AuditEvent, plan_event
from nvtrader_pipelines.execution.book import BookedOrder
from nvtrader_pipelines.execution.errors import ExecutionError
from nvtrader_pipelines.execution.plan_records import PlanRecord
from nvtrader_pipelines.market.calendar import EXCHANGE_TIME, sessions

OPENS_AT = time(9, 30)
Answer = Literal["approved", "overridden", "rejected"]
ANSWERABLE = {"approved": {"waiting"}, "overridden": {"waiting", "cleared"}, "rejected": {"waiting", "cleared"}}
WHY_NOT = {
    "constructed": "compliance has not looked at it yet",
    "blocked": "compliance blocks it, which nobody can approve",
    "cleared": "nothing was found that waits for approval; it goes on by itself",
    "cancelled": "it was cancelled",
    "placed": "its orders are at the broker",
    "filled": "its orders are filled",
}


def opens_after(session: date) -> datetime:
    """When the exchange opens the session after one."""
    following = sessions(session + timedelta(days=1), session + timedelta(days=14))[0].item()
    return datetime.combine(following, OPENS_AT, EXCHANGE_TIME)


def require_no_orders(plan_id: str, booked: Sequence[BookedOrder]) -> None:
    """Refuse an answer to a plan whose orders a step that was killed had begun to place.

    Raises:
        ExecutionError: if one is open; a broker may have it.
    """
    waiting = [each.order.symbol for each in booked if each.status == "accepted"]
    if waiting:
        raise ExecutionError(
            f"a plan is answered before its orders are made, but those of plan {plan_id} for {', '.join(waiting)} may "
            "be at the broker already; trade the account, which finishes them, or halt trading, which cancels them"
        )


def answered(record: PlanRecord, answer: Answer, stands_at: date, said: tuple[str, str], at: datetime) -> AuditEvent:
    """The event of an answer; that of a replay, whose market has gone on, tells since when it has.

    Args:
        record: the plan and what became of it.
        answer: what is said.
        stands_at: the session the account was settled at last.
        said: by whom, and why.
        at: when.

    Raises:
        ExecutionError: if the plan cannot be answered so any more, or a reason is missing.
    """
    plan, (by, reason) = record.plan, said
    if record.decided_by is not None:
        raise ExecutionError(
            f"a plan is decided on once, but {plan.plan_id} was {record.decision} by {record.decided_by} at "
            f"{record.decided_at}{_since(record)}; the next plan can be decided on anew"
        )
    if record.status not in ANSWERABLE[answer]:
        raise ExecutionError(
            f"plan {plan.plan_id} cannot be {answer}: {WHY_NOT.get(record.status, record.status)}"
            f"{f' ({record.reason})' if record.reason else ''}"
        )
    if stands_at > plan.session:
        raise ExecutionError(
            f"plan {plan.plan_id} cannot be {answer}: it was decided at {plan.session}, and its fill session has "
            f"passed, since the account stands at {stands_at}; wait for the next plan"
        )
    begins = opens_after(plan.session)
    if record.constructed_at < begins <= at:
        raise ExecutionError(
            f"plan {plan.plan_id} cannot be {answer}: it was made before its fill session, which has begun at "
            f"{begins:%Y-%m-%d %H:%M %Z}, and whoever answers now may know how it goes; wait for the next plan"
        )
    if answer != "approved" and not reason.strip():
        raise ExecutionError(f"a plan is {answer} for a reason, which is kept to learn from; give one")
    detail = {"fill_session_began": begins.isoformat()} if begins <= at else {}
    return plan_event(answer, plan, at, by, About(reason=reason, detail=detail))


def _since(record: PlanRecord) -> str:
    """What has become of a plan since it was decided on."""
    if record.status == record.decision:
        return ""
    why = f" ({record.reason})" if record.status == "cancelled" else ""  # else the reason is that of the decision
    return f", and since then {WHY_NOT[record.status]}{why}"
