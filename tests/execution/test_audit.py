import pytest
from pydantic import ValidationError

from nvtrader_pipelines.execution.audit import REQUIRED_DETAIL, AuditEvent, event_id, plan_event
from tests.execution.plans import AT, a_plan


def test_event_id_depends_on_kind_and_parts():
    ids = [event_id("placed", "a", 1), event_id("filled", "a", 1), event_id("placed", "a", 2), event_id("placed", "a")]
    assert len({*ids, event_id("placed", "a", 1)}) == 4


def test_plan_event_has_ids_of_policy_run_spec_and_data():
    plan = a_plan()
    event = plan_event("proposed", plan, AT, "trader")
    for name in ("plan_id", "account", "session", "policy", "run_id", "spec_hash", "snapshot_ids"):
        assert getattr(event, name) == getattr(plan, name)


@pytest.mark.parametrize(("kind", "part"), REQUIRED_DETAIL.items())
def test_event_without_its_required_detail_is_invalid(kind, part):
    with pytest.raises(ValidationError, match=part):
        AuditEvent(event_id="0" * 16, kind=kind, at=AT, by="pat", detail={"else": 1})


@pytest.mark.parametrize("changes", [{"event_id": "x"}, {"at": AT.replace(tzinfo=None)}, {"kind": "guessed"}])
def test_event_without_id_time_or_kind_is_invalid(changes):
    with pytest.raises(ValidationError):
        AuditEvent.model_validate({"event_id": "0" * 16, "kind": "halted", "at": AT, "by": "pat", **changes})
