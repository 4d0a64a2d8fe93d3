import pytest

from nvtrader_pipelines.execution.audit import plan_event
from nvtrader_pipelines.execution.plan_records import plan_records
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
)

PLAN = a_plan()
A, B = an_order(PLAN, "A"), an_order(PLAN, "B", "sell")


def record(*events):
    return plan_records([plan_event("proposed", PLAN, AT, "trader"), constructed(PLAN), *events])[PLAN.plan_id]


@pytest.mark.parametrize(
    ("events", "status"),
    [
        ([], "constructed"),
        ([judged(PLAN)], "cleared"),
        ([judged(PLAN, "warn")], "cleared"),
        ([judged(PLAN, "warn", "soft")], "waiting"),
        ([judged(PLAN, "soft", "hard")], "blocked"),
        ([judged(PLAN, "soft"), decided(PLAN, "approved")], "approved"),
        ([judged(PLAN, "soft"), decided(PLAN, "overridden")], "overridden"),
        ([judged(PLAN, "soft"), decided(PLAN, "rejected")], "rejected"),
        ([judged(PLAN, "soft"), decided(PLAN, "cancelled")], "cancelled"),
        ([judged(PLAN), placed(PLAN, A)], "placed"),
        ([judged(PLAN), placed(PLAN, A), filled(PLAN, a_fill(A, 3.0))], "placed"),
        ([judged(PLAN), placed(PLAN, A), filled(PLAN, a_fill(A))], "filled"),
        ([judged(PLAN), placed(PLAN, A), placed(PLAN, B), filled(PLAN, a_fill(A))], "placed"),
        ([judged(PLAN), placed(PLAN, A), placed(PLAN, B), filled(PLAN, a_fill(A)), cancelled(PLAN, B, "")], "filled"),
        ([judged(PLAN), cancelled(PLAN, B, "halted"), placed(PLAN, A), filled(PLAN, a_fill(A))], "filled"),
        ([judged(PLAN), cancelled(PLAN, B, "halted")], "cleared"),
        ([judged(PLAN), placed(PLAN, A), placed(PLAN, B), cancelled(PLAN, A, ""), cancelled(PLAN, B, "")], "cancelled"),
        ([judged(PLAN), placed(PLAN, A), filled(PLAN, a_fill(A, 3.0)), cancelled(PLAN, A, "")], "filled"),
        ([judged(PLAN), decided(PLAN, "overridden"), decided(PLAN, "cancelled")], "overridden"),
        ([judged(PLAN), decided(PLAN, "rejected"), decided(PLAN, "cancelled")], "rejected"),
    ],
)
def test_a_plan_is_where_its_events_have_brought_it(events, status):
    assert record(*events).status == status


def test_what_was_found_and_who_decided_is_kept():
    after = record(judged(PLAN, "soft", "warn"), decided(PLAN, "approved", "pat", "a known move"))
    assert [each.level for each in after.findings] == ["soft", "warn"]
    assert (after.decision, after.decided_by, after.reason, after.decided_at) == ("approved", "pat", "a known move", AT)


def test_a_plan_comes_back_as_it_was_constructed():
    assert record().plan == PLAN


def test_events_of_no_plan_and_of_unknown_plans_change_nothing():
    stranger = a_plan(account="other")
    assert list(plan_records([constructed(PLAN), decided(stranger, "approved")])) == [PLAN.plan_id]
