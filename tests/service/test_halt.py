import getpass
import json
import os

import pytest

from nvtrader_pipelines.storage.audit_log import JsonlAudit
from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.kill_switch import VARIABLE, FileKillSwitch


@pytest.fixture
def home(tmp_path):
    return Home(tmp_path)


@pytest.fixture
def invoke(home, command):
    return command(home)


def kinds(home):
    return [(event.kind, event.by, event.reason) for event in JsonlAudit(home).events()]


def test_halting_stops_trading_with_one_sentence_and_halting_twice_says_so(home, invoke):
    first, again = invoke("halt", "--reason", "bars look wrong [/]"), invoke("halt", "--reason", "once more")
    assert (first.exit_code, again.exit_code) == (0, 0)
    assert first.stdout == "trading is stopped: bars look wrong [/]\n"
    assert again.stdout.startswith("trading is stopped already: ")
    assert "bars look wrong" in (FileKillSwitch(home).engaged() or "")
    rows = kinds(home)
    assert rows[0] == ("halted", getpass.getuser(), "bars look wrong [/]")
    assert [(kind, reason[:34]) for kind, _, reason in rows[1:]] == [("halted", "once more; it was stopped already:")]


def test_resuming_lets_trading_go_on_and_is_on_record(home, invoke):
    invoke("halt", "--reason", "why")
    found, again = invoke("resume", "--reason", "fixed"), invoke("resume")
    assert (found.exit_code, again.exit_code) == (0, 0)
    assert "may go on" in found.stdout
    assert "was not stopped" in again.stdout
    assert FileKillSwitch(home).engaged() is None
    assert kinds(home)[-1] == ("resumed", getpass.getuser(), "fixed")


def test_resuming_says_what_still_stops_trading(home, invoke, monkeypatch):
    monkeypatch.setenv(VARIABLE, "1")
    invoke("halt")
    document = json.loads(invoke("resume", "--json").stdout)
    assert VARIABLE in document["said"]
    assert VARIABLE in document["kill_switch"]


def test_a_person_without_a_name_can_halt_too(home, invoke, monkeypatch):
    monkeypatch.setattr(getpass, "getuser", lambda: {}["nobody"])
    assert invoke("halt").exit_code == 0
    assert kinds(home) == [("halted", f"user {os.getuid()}", "no reason was given")]
