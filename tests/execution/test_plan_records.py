import pytest

from nvtrader_pipelines.execution.audit import plan_event
from nvtrader_pipelines.execution.plan_records import plan_records
from tests.execution.plans import AT, a_fill, a_plan, an_order, cancelled, constructed, decided, filled, judged, placed

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
def test_plan_status_follows_its_events(events, status):
    assert record(*events).status == status


def test_record_holds_findings_and_decision():
    after = record(judged(PLAN, "soft", "warn"), decided(PLAN, "approved", "pat", "a known move"))
    assert [each.level for each in after.findings] == ["soft", "warn"]
    assert (after.decision, after.decided_by, after.reason, after.decided_at) == ("approved", "pat", "a known move", AT)


def test_recorded_plan_equals_the_constructed_one():
    assert record().plan == PLAN


def test_events_without_a_known_plan_change_no_record():
    stranger = a_plan(account="other")
    assert list(plan_records([constructed(PLAN), decided(stranger, "approved")])) == [PLAN.plan_id]
