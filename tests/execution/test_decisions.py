import datetime as dt

import pytest

from nvtrader_pipelines.execution.book import BookedOrder
from nvtrader_pipelines.execution.decisions import require_no_orders
from nvtrader_pipelines.execution.errors import ExecutionError
from nvtrader_pipelines.execution.plan import Finding
from nvtrader_pipelines.execution.plan_records import PlanRecord, plan_records
from nvtrader_pipelines.market.calendar import NEW_YORK
from tests.execution.plans import (
    AT,
    a_fill,
    a_plan,
    an_order,
    cancelled,
    constructed,
    decided,
    filled,
    judged,
    placed,
    record_decision,
)

PLAN = a_plan()
OPENS = NEW_YORK.decision_deadline(PLAN.session)
ORDER = an_order(PLAN)
SOFT = Finding(rule="turnover_pct_warn", level="soft", figure=0.5, bound=0.2, sentence="turnover is high")


def waiting(constructed_at):
    return PlanRecord(PLAN, constructed_at, "waiting", (SOFT,))


@pytest.mark.parametrize("answer", ["approved", "overridden", "rejected"])
def test_decision_after_the_fill_open_raises(answer):
    record = waiting(OPENS - dt.timedelta(hours=12))
    for late in (OPENS, OPENS + dt.timedelta(days=60)):
        with pytest.raises(ExecutionError):
            record_decision(record, answer, PLAN.session, ("ann", "I looked"), late)
    event = record_decision(record, answer, PLAN.session, ("ann", "I looked"), OPENS - dt.timedelta(seconds=1))
    assert (event.kind, event.detail) == (answer, {})


def test_replayed_decision_records_the_open_of_the_fill_session():
    made = OPENS + dt.timedelta(days=700)
    event = record_decision(waiting(made), "approved", PLAN.session, ("ann", ""), made + dt.timedelta(minutes=5))
    assert event.detail == {"fill_session_began": OPENS.isoformat()}


def test_decision_raises_for_a_plan_with_open_orders():
    order = an_order(PLAN, "A")
    require_no_orders(PLAN.plan_id, [BookedOrder(order=order, status="cancelled", reason="stopped")])
    with pytest.raises(ExecutionError):
        require_no_orders(PLAN.plan_id, [BookedOrder.accept(order)])


@pytest.mark.parametrize(
    ("decision", "since"),
    [
        ("approved", []),
        ("rejected", []),
        ("overridden", [decided(PLAN, "cancelled", "trader", "expired")]),
        ("approved", [placed(PLAN, ORDER)]),
        ("approved", [placed(PLAN, ORDER), filled(PLAN, a_fill(ORDER))]),
        ("approved", [placed(PLAN, ORDER), cancelled(PLAN, ORDER, "a drill")]),
    ],
)
def test_second_decision_raises_with_the_first_one(decision, since):
    events = [constructed(PLAN), judged(PLAN, "soft"), decided(PLAN, decision, "pat", "a known move"), *since]
    record = plan_records(events)[PLAN.plan_id]
    with pytest.raises(ExecutionError, match=f"{decision} by pat") as raised:
        record_decision(record, "rejected", PLAN.session, ("bob", "no"), AT)
    assert "a known move" not in str(raised.value)
