import datetime as dt

import pytest

from nvtrader_pipelines.execution.book import BookedOrder
from nvtrader_pipelines.execution.decisions import answered, opens_after, require_no_orders
from nvtrader_pipelines.execution.errors import ExecutionError
from nvtrader_pipelines.execution.plan import Finding
from nvtrader_pipelines.execution.plan_records import PlanRecord, plan_records
from tests.execution.plans import AT, a_fill, a_plan, an_order, cancelled, constructed, decided, filled, judged, placed

PLAN = a_plan()
OPENS = opens_after(PLAN.session)
ORDER = an_order(PLAN)
SOFT = Finding(rule="turnover_pct_warn", level="soft", figure=0.5, bound=0.2, sentence="turnover is high")


def waiting(constructed_at):
    return PlanRecord(PLAN, constructed_at, "waiting", (SOFT,))


@pytest.mark.parametrize("answer", ["approved", "overridden", "rejected"])
def test_a_plan_that_was_made_before_its_fill_session_is_answered_before_it_too(answer):
    record = waiting(OPENS - dt.timedelta(hours=12))
    for late in (OPENS, OPENS + dt.timedelta(days=60)):
        with pytest.raises(ExecutionError, match=r"its fill session, which has begun at .* 09:30 E"):
            answered(record, answer, PLAN.session, ("ann", "I looked"), late)
    event = answered(record, answer, PLAN.session, ("ann", "I looked"), OPENS - dt.timedelta(seconds=1))
    assert (event.kind, event.detail) == (answer, {})


def test_an_answer_in_a_replay_says_that_the_fill_session_had_begun():
    made = OPENS + dt.timedelta(days=700)
    event = answered(waiting(made), "approved", PLAN.session, ("ann", ""), made + dt.timedelta(minutes=5))
    assert event.detail == {"fill_session_began": OPENS.isoformat()}


def test_the_exchange_opens_at_half_past_nine_of_new_york_after_weekends_and_holidays():
    assert opens_after(dt.date(2024, 7, 3)).isoformat() == "2024-07-05T09:30:00-04:00"
    assert opens_after(dt.date(2024, 12, 31)).isoformat() == "2025-01-02T09:30:00-05:00"


def test_a_plan_with_orders_that_a_broker_may_have_is_not_answered():
    order = an_order(PLAN, "A")
    require_no_orders(PLAN.plan_id, [BookedOrder(order=order, status="cancelled", reason="stopped")])
    with pytest.raises(ExecutionError, match="for A may be at the broker already"):
        require_no_orders(PLAN.plan_id, [BookedOrder.accepted(order)])


@pytest.mark.parametrize(
    ("said", "since", "told"),
    [
        ("approved", [], "was approved by pat at .*; the next"),
        ("rejected", [], "was rejected by pat at .*; the next"),
        ("overridden", [decided(PLAN, "cancelled", "trader", "expired")], "was overridden by pat at .*; the next"),
        (
            "approved",
            [placed(PLAN, ORDER)],
            "was approved by pat at .*, and since then its orders are at the broker; the next",
        ),
        (
            "approved",
            [placed(PLAN, ORDER), filled(PLAN, a_fill(ORDER))],
            "was approved by pat at .*, and since then its orders are filled; the next",
        ),
        (
            "approved",
            [placed(PLAN, ORDER), cancelled(PLAN, ORDER, "a drill")],
            r"was approved by pat at .*, and since then it was cancelled \(a drill\); the next",
        ),
    ],
)
def test_a_second_answer_is_told_what_was_said_first_by_whom_and_what_came_of_the_plan(said, since, told):
    events = [constructed(PLAN), judged(PLAN, "soft"), decided(PLAN, said, "pat", "a known move"), *since]
    record = plan_records(events)[PLAN.plan_id]
    with pytest.raises(ExecutionError, match=told) as refused:
        answered(record, "rejected", PLAN.session, ("bob", "no"), AT)
    assert "a known move" not in str(refused.value)
