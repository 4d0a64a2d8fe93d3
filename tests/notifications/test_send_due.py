import json
from datetime import UTC, datetime, timedelta

import pytest

from nvtrader_pipelines.notifications.notification import Notification
from nvtrader_pipelines.notifications.send_due import record_command, send_due
from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.notification_record import NotificationRecordFile
from tests.notifications.servers import TOKEN

AT = datetime(2026, 3, 2, 22, tzinfo=UTC)
ONE, TWO = (Notification("failed_run", name, f"the run {name} failed", f"run {name}") for name in ("one", "two"))
PLAN = Notification("waiting_plan", "3f2a", "a plan waits", "`nvtrader plans show 3f2a`")


def record(home):
    return NotificationRecordFile(home).read()


def test_state_is_sent_once_while_it_lasts(home, webhook):
    rounds = [send_due(home, {"failed_run": [ONE]}, AT) for _ in range(3)]
    assert [each.sent for each in rounds] == [{"default": [ONE]}, {}, {}]
    assert webhook.titles == ["[nvtrader home] the run one failed"]
    assert webhook.messages[0]["message"] == "run one\n\nHome: home"


def test_state_that_ended_and_returned_is_sent_again(home, webhook):
    for states in ([ONE], [], [ONE], [ONE]):
        send_due(home, {"failed_run": states}, AT)
    assert len(webhook.messages) == 2


def test_kind_that_was_not_read_is_not_forgotten(home, webhook):
    for states in ({"waiting_plan": [PLAN]}, {"failed_run": []}, {"waiting_plan": [PLAN]}):
        send_due(home, states, AT)
    assert len(webhook.messages) == 1


def test_several_states_are_one_message(home, webhook):
    send_due(home, {"failed_run": [ONE, TWO], "waiting_plan": [PLAN]}, AT)
    assert webhook.titles == ["[nvtrader home] the run one failed (and 2 more)"]
    assert all(each.body in webhook.messages[0]["message"] for each in (ONE, TWO, PLAN))


def test_failed_delivery_is_recorded_and_retried(home, webhook):
    webhook.status = 503
    first = send_due(home, {"failed_run": [ONE]}, AT)
    assert "error=503" in first.problems["default"]
    assert record(home).failed_deliveries["default"].reason == first.problems["default"]
    webhook.status = 200
    second = send_due(home, {"failed_run": [ONE, TWO]}, AT + timedelta(minutes=1))
    assert second.sent == {"default": [ONE, TWO]}
    assert record(home).failed_deliveries == {}


def test_each_channel_gets_its_kinds_and_fails_alone(home, webhook, monkeypatch):
    monkeypatch.setenv("DEAD", f"json://127.0.0.1:9/{TOKEN}")
    home.notifications_file.write_text(
        "channels:\n  dead: {url_variable: DEAD}\n  plans: {kinds: [waiting_plan]}\n  unset: {url_variable: NONE}\n"
    )
    done = send_due(home, {"failed_run": [ONE], "waiting_plan": [PLAN]}, AT)
    assert done.sent == {"plans": [PLAN]}
    assert done.problems.keys() == {"dead", "unset"}
    assert record(home).sent == {PLAN.key: ["plans"]}


def test_record_holds_no_secret(home, webhook, monkeypatch):
    monkeypatch.setenv("BROKER_SECRET", "correct-horse-battery")
    record_command(home, "nvtrader trade", f"refused correct-horse-battery at {webhook.url}", AT)
    webhook.status = 500
    send_due(home, {}, AT)
    written = home.notification_record.read_text()
    assert "correct-horse-battery" not in written
    assert TOKEN not in written
    assert json.loads(written)["failed_commands"]["nvtrader trade"]["reason"] == "refused *** at json://***"


def test_failed_command_is_sent_until_it_succeeds(home, webhook):
    for problem in ("disk full", "disk full", None, "disk full", "no panel"):
        record_command(home, "nvtrader materialize", problem, AT)
        send_due(home, {}, AT)
    assert webhook.titles == ["[nvtrader home] `nvtrader materialize` failed"] * 3
    assert "no panel" in webhook.messages[-1]["message"]


@pytest.mark.parametrize("content", [b"", b"{", b'{"sent": 1}', b"\xff"])
def test_damaged_record_is_refused_with_a_remedy(home, webhook, content):
    home.notification_record.parent.mkdir(parents=True)
    home.notification_record.write_bytes(content)
    with pytest.raises(StorageError, match="remove it"):
        send_due(home, {"failed_run": [ONE]}, AT)
    home.notification_record.unlink()
    assert send_due(home, {"failed_run": [ONE]}, AT).sent == {"default": [ONE]}


def test_unwritable_record_sends_nothing(home, webhook):
    home.notification_record.mkdir(parents=True)  # for root may write everywhere else
    with pytest.raises(StorageError):
        send_due(home, {"failed_run": [ONE]}, AT)
    assert webhook.messages == []


def test_home_without_channel_writes_nothing(home):
    assert send_due(home, {"failed_run": [ONE]}, AT).sent == {}
    assert not home.notification_record.exists()
