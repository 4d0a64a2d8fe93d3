"""The command `nvtrader notify`, and notifications at the end of other commands, sent to a server on this machine."""

import json

import pytest

from nvtrader_pipelines.service.cli.exit_codes import BAD_INPUT, FAILED
from nvtrader_pipelines.storage.notification_record import NotificationRecordFile
from tests.notifications.servers import TOKEN
from tests.service.cli.error_lines import is_one_line_error
from tests.service.cli.sample_plans import TURNOVER, append_plan, plan


@pytest.fixture
def invoke(home, command):
    return command(home)


def doctor(invoke):
    return {each["check"]: each for each in json.loads(invoke("doctor", "--json").stdout)}


def test_notify_without_channel_is_refused_with_the_variable(invoke):
    found = invoke("notify")
    assert found.exit_code == BAD_INPUT
    assert is_one_line_error(found.stderr)
    assert "$NVTRADER_NOTIFY_URL" in found.stderr


def test_test_message_reaches_the_server(invoke, webhook):
    found = invoke("notify", "--test", "--json")
    assert found.exit_code == 0
    assert json.loads(found.stdout) == [{"channel": "default", "message": "test message", "problem": ""}]
    assert webhook.titles == ["[nvtrader home] test message"]


def test_refused_test_message_is_reported_by_command_and_doctor(invoke, webhook):
    webhook.status = 404
    found = invoke("notify", "--test", "--json")
    (row,) = json.loads(found.stdout)
    assert found.exit_code == FAILED
    assert "error=404" in row["problem"]
    assert row["problem"] in doctor(invoke)["channel default"]["problem"]
    webhook.status = 200
    assert invoke("notify", "--test").exit_code == 0
    assert doctor(invoke)["channel default"]["problem"] == ""


def test_doctor_names_unset_variable_of_a_channel(home, invoke):
    assert doctor(invoke)["notifications"]["problem"] == ""
    home.notifications_file.write_text("channels: {desk: {url_variable: DESK_MAIL}}\n")
    assert "$DESK_MAIL is not set" in doctor(invoke)["channel desk"]["problem"]


@pytest.mark.slow
def test_notify_sends_waiting_plan_once(home, invoke, webhook):
    waiting = append_plan(home, plan(), TURNOVER)
    first, second = (json.loads(invoke("notify", "--json").stdout) for _ in range(2))
    assert [each["message"] for each in first] == ["a plan of the account paper waits for you"]
    assert second == []
    (message,) = webhook.messages
    assert f"nvtrader plans approve {waiting.plan_id}" in message["message"]


@pytest.mark.slow
def test_halt_sends_kill_switch_and_stays_quiet_about_it(invoke, webhook):
    found = invoke("halt", "--reason", "prices look wrong")
    assert (found.exit_code, found.stderr) == (0, "")
    assert webhook.titles == ["[nvtrader home] trading is stopped by the kill switch"]
    invoke("resume")
    invoke("halt", "--reason", "again")
    assert len(webhook.messages) == 2


def test_unreachable_channel_changes_no_outcome_of_halt(home, invoke, monkeypatch):
    monkeypatch.setenv("NVTRADER_NOTIFY_URL", f"json://127.0.0.1:9/{TOKEN}")
    found = invoke("halt", "--json")
    assert found.exit_code == 0
    assert json.loads(found.stdout)["kill_switch"]
    assert "no notification was sent: the channel default" in found.stderr
    assert TOKEN not in found.output
    assert "default" in NotificationRecordFile(home).read().failed_deliveries


def test_damaged_settings_change_no_outcome_of_halt(home, invoke):
    home.notifications_file.write_text("channels: 1\n")
    found = invoke("halt")
    assert found.exit_code == 0
    assert "notifications.yaml" in found.stderr


@pytest.mark.slow
def test_failed_trade_is_sent_once_until_it_succeeds(invoke, webhook):
    found = [invoke("trade") for _ in range(2)]
    assert [each.exit_code for each in found] == [BAD_INPUT, BAD_INPUT]
    assert webhook.titles == ["[nvtrader home] `nvtrader trade --account paper` failed"]
    assert found[0].stderr.removeprefix("error: ").strip() in webhook.messages[0]["message"]


@pytest.mark.slow
def test_materialize_that_fails_before_any_run_is_sent_once(invoke, webhook):
    assert [invoke("materialize").exit_code for _ in range(2)] == [BAD_INPUT, BAD_INPUT]  # there is no experiment
    assert webhook.titles == ["[nvtrader home] `nvtrader materialize` failed"]
