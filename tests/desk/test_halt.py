import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Thread

import pytest

from nvtrader_pipelines.desk.halt import halt, resume
from nvtrader_pipelines.storage.audit_log import JsonlAudit
from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.kill_switch import VARIABLE, FileKillSwitch
from nvtrader_pipelines.storage.store import Store

AT = datetime(2022, 3, 10, 15, 30, tzinfo=UTC)


@pytest.fixture(autouse=True)
def _unset(monkeypatch):
    monkeypatch.delenv(VARIABLE, raising=False)


@pytest.fixture
def switch(home):
    return FileKillSwitch(home)


@pytest.fixture
def log(store):
    return store.audit


@pytest.fixture
def clock():
    moments = (AT + timedelta(minutes=n) for n in range(9))
    return lambda: next(moments)


def with_audit(home, audit):
    """Store with another audit."""
    store = Store(home)
    vars(store)["audit"] = audit
    return store


def events_of(log):
    return [(each.kind, each.by, each.reason) for each in log.events()]


def test_missing_switch_is_not_engaged_and_reading_writes_nothing(home, switch):
    assert switch.halt_reason() is None
    assert not home.runtime.exists()


def _file(content):
    return lambda path: path.write_bytes(content)


PLACES = {
    "an empty file": _file(b""),
    "a note by hand": _file(b"market is odd"),
    "zeros": _file(b"\0" * 80),
    "no UTF-8": _file(b"\xff\xfe"),
    "another JSON": _file(b'{"reason": "x"}'),
    "a JSON that is no mapping": _file(b"[]"),
    "a moment that is none": _file(b'{"reason": "x", "by": "pat", "at": "soon"}'),
    "a moment before all in UTC": _file(b'{"reason": "x", "by": "pat", "at": "0001-01-01T00:00:00+14:00"}'),
    "a moment after all in UTC": _file(b'{"reason": "x", "by": "pat", "at": "9999-12-31T23:00:00-14:00"}'),
    "a directory": lambda path: path.mkdir(),
    "a dangling symlink": lambda path: path.symlink_to("gone"),
    "a link to itself": lambda path: path.symlink_to(path),
    "a link to an endless device": lambda path: path.symlink_to("/dev/zero"),
    "a pipe": os.mkfifo,
}


@pytest.mark.parametrize("place", PLACES)
def test_anything_at_the_switch_path_engages_it_until_resumed(store, home, switch, log, clock, place):
    home.runtime.mkdir()
    PLACES[place](home.kill_switch)
    assert "exists, but gives no reason" in switch.halt_reason()
    assert "stopped already" in halt(store, "pat", "again", clock)
    assert resume(store, "pat", "looked at", clock) == "trading may resume"
    assert switch.halt_reason() is None
    (again, *rest) = events_of(log)
    assert again[:2] == ("halted", "pat")
    assert again[2].startswith("again; it was stopped already: the kill switch ")
    assert rest == [("resumed", "pat", "looked at")]


def test_inaccessible_switch_path_counts_as_engaged(store, home, switch, log, clock):
    home.runtime.parent.mkdir(exist_ok=True)
    home.runtime.write_text("a file where a folder must be")
    assert "cannot be checked (Not a directory), which counts as engaged" in switch.halt_reason()
    assert "stopped already" in halt(store, "pat", "again", clock)
    with pytest.raises(StorageError):
        resume(store, "pat", "looked at", clock)
    assert [kind for kind, *_ in events_of(log)] == ["halted", "resumed", "halted"]


def test_unreadable_switch_file_engages_it(home, switch, monkeypatch):
    home.runtime.mkdir()
    home.kill_switch.touch()

    def refuse(path):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "read_bytes", refuse)
    assert "gives no reason" in switch.halt_reason()


@pytest.mark.parametrize("value", ["1", "true", "yes", "no", "00", " "])
def test_variable_engages_the_switch(monkeypatch, switch, value):
    monkeypatch.setenv(VARIABLE, value)
    assert switch.halt_reason() == f"the environment has {VARIABLE}={value}"


@pytest.mark.parametrize("value", ["", "0"])
def test_empty_or_zero_variable_does_not_engage_the_switch(monkeypatch, switch, value):
    monkeypatch.setenv(VARIABLE, value)
    assert switch.halt_reason() is None


def test_switch_remedy_names_what_engages_it(store, switch, clock, monkeypatch):
    assert switch.remedy == ""
    monkeypatch.setenv(VARIABLE, "1")
    assert switch.remedy == f"unset {VARIABLE} to trade again"
    halt(store, "ann", "news", clock)
    assert switch.remedy.endswith("; `nvtrader resume` releases it")


def test_halt_has_author_and_reason_and_is_audited(store, home, switch, log, clock):
    assert halt(store, "pat", "fire drill", clock) == "trading is stopped: fire drill"
    assert switch.halt_reason() == "pat stopped trading at 2022-03-10 15:30 UTC: fire drill"
    assert events_of(log) == [("halted", "pat", "fire drill")]


def test_second_halt_is_audited_and_keeps_the_first_reason(store, home, switch, log, clock):
    halt(store, "pat", "fire drill", clock)
    said = halt(store, "kim", "me too", clock)
    assert said == "trading is stopped already: pat stopped trading at 2022-03-10 15:30 UTC: fire drill"
    assert "fire drill" in switch.halt_reason()
    assert events_of(log) == [
        ("halted", "pat", "fire drill"),
        ("halted", "kim", "me too; it was stopped already: pat stopped trading at 2022-03-10 15:30 UTC: fire drill"),
    ]


def test_resume_is_audited_and_allows_another_halt(store, home, switch, log, clock):
    halt(store, "pat", "fire drill", clock)
    assert resume(store, "kim", "over", clock) == "trading may resume"
    assert switch.halt_reason() is None
    halt(store, "pat", "real fire", clock)
    assert [kind for kind, *_ in events_of(log)] == ["halted", "resumed", "halted"]


def test_resume_without_halt_is_not_audited(store, home, log, clock):
    assert "was not stopped by the file" in resume(store, "pat", "over", clock)
    assert events_of(log) == []


@pytest.mark.parametrize("stopped", [True, False])
def test_resume_with_variable_set_reports_trading_still_stopped(store, home, switch, log, clock, monkeypatch, stopped):
    if stopped:
        halt(store, "pat", "fire drill", clock)
    monkeypatch.setenv(VARIABLE, "1")
    assert f"still stopped here, for the environment has {VARIABLE}=1: unset it" in resume(store, "pat", "over", clock)
    assert not home.kill_switch.exists()
    assert switch.halt_reason() is not None


class SlowAudit(JsonlAudit):
    """Audit whose append is slow, while another process halts trading."""

    def append(self, events):
        self.other = Thread(target=halt, args=(Store(self.home), "kim", "news", lambda: AT))
        self.other.start()
        self.other.join(0.3)  # it waits for its turn, or was done before the file is removed
        super().append(events)


def test_halt_during_a_resume_is_not_lost(store, home, switch, log, clock):
    halt(store, "pat", "fire drill", clock)
    slow = SlowAudit(home)
    slow.home = home
    resume(with_audit(home, slow), "pat", "over", clock)
    slow.other.join()
    assert switch.halt_reason() == "kim stopped trading at 2022-03-10 15:30 UTC: news"
    assert [kind for kind, *_ in events_of(log)] == ["halted", "resumed", "halted"]


def test_halt_without_a_lock_folder_stops_trading(store, home, switch, log, clock):
    home.warehouse.parent.mkdir(exist_ok=True, parents=True)
    home.warehouse.write_text("a file where a folder must be")
    halt(store, "pat", "fire drill", clock)
    assert "fire drill" in switch.halt_reason()


class DamagedAudit:
    """Audit that fails to append."""

    def append(self, events):
        raise StorageError("the audit is damaged")


def test_unaudited_halt_stops_and_is_audited_by_the_next(store, home, switch, log, clock):
    with pytest.raises(StorageError):
        halt(with_audit(home, DamagedAudit()), "pat", "fire drill", clock)
    assert "fire drill" in switch.halt_reason()
    assert "stopped already" in halt(store, "kim", "me too", clock)
    assert [(by, reason[:10]) for _, by, reason in events_of(log)] == [("pat", "fire drill"), ("kim", "me too; it")]


def test_resume_that_cannot_be_audited_keeps_trading_stopped(store, home, switch, log, clock):
    halt(store, "pat", "fire drill", clock)
    with pytest.raises(StorageError):
        resume(with_audit(home, DamagedAudit()), "kim", "over", clock)
    assert "fire drill" in switch.halt_reason()


def test_unwritable_switch_error_names_the_variable(store, home, log, clock, monkeypatch):
    def full(path, content):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("nvtrader_pipelines.storage.kill_switch.write_atomically", full)
    with pytest.raises(StorageError, match=VARIABLE):
        halt(store, "pat", "fire drill", clock)
    assert events_of(log) == []
