import pytest
from pydantic import ValidationError

from nvtrader_pipelines.execution.audit import CARRIES, AuditEvent, event_id, plan_event
from tests.execution.plans import AT, a_plan


def test_an_event_is_the_same_again_and_another_of_another_kind_or_part():
    ids = [event_id("placed", "a", 1), event_id("filled", "a", 1), event_id("placed", "a", 2), event_id("placed", "a")]
    assert len({*ids, event_id("placed", "a", 1)}) == 4


def test_the_event_of_a_plan_leads_to_policy_run_spec_and_data():
    plan = a_plan()
    event = plan_event("proposed", plan, AT, "trader")
    for name in ("plan_id", "account", "session", "policy", "run_id", "spec_hash", "snapshot_ids"):
        assert getattr(event, name) == getattr(plan, name)


@pytest.mark.parametrize(("kind", "part"), CARRIES.items())
def test_an_event_without_what_its_kind_carries_is_refused(kind, part):
    with pytest.raises(ValidationError, match=f"an event {kind} must carry '{part}' in its detail"):
        AuditEvent(event_id="0" * 16, kind=kind, at=AT, by="pat", detail={"else": 1})


@pytest.mark.parametrize("changes", [{"event_id": "x"}, {"at": AT.replace(tzinfo=None)}, {"kind": "guessed"}])
def test_an_event_without_identity_moment_or_kind_is_refused(changes):
    with pytest.raises(ValidationError):
        AuditEvent.model_validate({"event_id": "0" * 16, "kind": "halted", "at": AT, "by": "pat", **changes})
