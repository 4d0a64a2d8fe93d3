"""Rows that are appended once, survive a kill, and cannot be changed unseen."""

import hashlib
import json
import os
import signal
import subprocess
import sys
from datetime import date, timedelta

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nvtrader_pipelines.execution.audit import AuditEvent, event_id
from nvtrader_pipelines.storage.audit_log import FIRST_CHAIN, JsonlAudit
from nvtrader_pipelines.storage.errors import StorageError
from tests.execution.plans import AT, a_plan, constructed, judged

DAMAGED = "is not what was appended after line"
APPENDER = """
import sys
from datetime import UTC, datetime
from pathlib import Path
from nvtrader_pipelines.execution.audit import AuditEvent, event_id
from nvtrader_pipelines.storage.audit_log import JsonlAudit
from nvtrader_pipelines.storage.home import Home

log, who, n_events = JsonlAudit(Home(Path(sys.argv[1]))), sys.argv[2], int(sys.argv[3])
at = datetime(2022, 3, 10, tzinfo=UTC)
for i in range(n_events):
    ids = {by: event_id("halted", by, i) for by in (who, "both")}
    log.append([AuditEvent(event_id=ids[by], kind="halted", at=at, by=by, reason=who * 500) for by in ids])
    print(i, flush=True)
"""


def an_event(i=0, by="pat", text="why", **detail):
    return AuditEvent(
        event_id=event_id("halted", by, i),
        kind="halted",
        at=AT + timedelta(seconds=i),
        by=by,
        reason=text,
        detail=detail,
    )


def appender(home, who, n_events):
    arguments = [sys.executable, "-c", APPENDER, str(home.root), who, str(n_events)]
    return subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True)


@pytest.fixture
def log(home):
    return JsonlAudit(home)


@pytest.fixture
def kept(home, log):
    """The file of an audit of five rows."""
    log.append([an_event(i) for i in range(5)])
    return log.path


def test_an_audit_that_was_never_written_is_empty_and_reading_makes_nothing(home, log):
    assert (list(log.events()), log.has("0" * 16)) == ([], False)
    assert (log.verify().n_rows, log.verify().chain) == (0, FIRST_CHAIN)
    assert not home.audit.exists()


def test_events_come_back_as_they_were_in_the_order_they_came(home, log):
    plan = a_plan()
    events = [constructed(plan), judged(plan, "soft", "warn"), an_event(3, weight=0.1 + 0.2)]
    log.append(events[:2])
    log.append(events[2:])
    assert [each.model_dump(mode="json") for each in JsonlAudit(home).events()] == [
        each.model_dump(mode="json") for each in events
    ]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50)
@given(
    value=st.floats(allow_nan=False, allow_infinity=False),
    text=st.text(st.characters(codec="utf-8")),
)
def test_numbers_and_text_are_kept_exactly(home, value, text):
    JsonlAudit(home).path.unlink(missing_ok=True)
    JsonlAudit(home).append([an_event(0, by=text, text=text, value=value, words=[text])])
    (found,) = JsonlAudit(home).events()
    assert (found.by, found.reason, found.detail["words"]) == (text, text, [text])
    assert found.detail["value"].hex() == value.hex()


def test_every_row_is_one_line_of_json_chained_to_the_row_before(kept):
    chain = FIRST_CHAIN
    for line in kept.read_text().splitlines():
        document = json.loads(line)
        said = document.pop("chain")
        body = line[: line.index(',"chain"')]
        chain = hashlib.sha256((chain + body).encode()).hexdigest()
        assert said == chain
        assert AuditEvent.model_validate(document)


def test_an_event_that_is_kept_already_is_left_as_it_is(log):
    log.append([an_event(0, text="first"), an_event(0, text="same batch"), an_event(1)])
    log.append([an_event(0, text="later"), an_event(2)])
    assert [each.reason for each in log.events()] == ["first", "why", "why"]


def test_events_of_one_account_are_told_apart(log):
    ours, theirs = constructed(a_plan()), constructed(a_plan(account="other"))
    log.append([ours, theirs, an_event()])
    assert [each.event_id for each in log.events("other")] == [theirs.event_id]
    assert len(log.events()) == 3


def test_what_another_appended_is_seen(home, log):
    log.append([an_event(0)])
    other = JsonlAudit(home)
    other.append([an_event(1)])
    assert log.has(an_event(1).event_id)
    log.append([an_event(1, text="again"), an_event(2)])
    assert [each.reason for each in other.events()] == ["why", "why", "why"]


@pytest.mark.parametrize(
    "value", [float("nan"), float("inf"), object(), "\ud800"], ids=["NaN", "infinity", "object", "surrogate"]
)
def test_an_event_that_is_no_json_is_refused_and_nothing_is_kept(log, value):
    with pytest.raises(StorageError, match="its detail must be finite numbers, text, lists and mappings"):
        log.append([an_event(0), an_event(1, value=value)])
    assert list(log.events()) == []


def changed(line):
    return line.replace(b'"reason":"why"', b'"reason":"not"')


TAMPERINGS = {
    "a row is changed": (lambda lines: [*lines[:2], changed(lines[2]), *lines[3:]], 3),
    "the first row is changed": (lambda lines: [changed(lines[0]), *lines[1:]], 1),
    "the last row is changed": (lambda lines: [*lines[:4], changed(lines[4])], 5),
    "a row is removed": (lambda lines: [*lines[:1], *lines[2:]], 2),
    "the first row is removed": (lambda lines: lines[1:], 1),
    "a row is there twice": (lambda lines: [*lines[:3], lines[2], *lines[3:]], 4),
    "two rows change places": (lambda lines: [lines[0], lines[2], lines[1], *lines[3:]], 2),
    "a row is added by hand": (lambda lines: [*lines, b'{"kind":"approved"}'], 6),
    "a row is empty": (lambda lines: [*lines[:3], b"", *lines[3:]], 4),
    "a row is zeros": (lambda lines: [*lines[:3], b"\0" * 300, *lines[4:]], 4),
    "a row is cut in the middle": (lambda lines: [*lines[:3], lines[3][:80], lines[4]], 4),
}


@pytest.mark.parametrize("name", TAMPERINGS)
def test_a_change_by_hand_is_found_at_its_line(home, kept, name):
    tamper, line = TAMPERINGS[name]
    kept.write_bytes(b"\n".join(tamper(kept.read_bytes().splitlines())) + b"\n")
    before = kept.read_bytes()
    for use in (JsonlAudit(home).verify, JsonlAudit(home).events, lambda: JsonlAudit(home).append([an_event(9)])):
        with pytest.raises(StorageError, match=f"line {line} of the audit .* {DAMAGED} {line - 1}"):
            use()
    assert kept.read_bytes() == before


def test_a_row_that_was_changed_after_it_was_read_is_found_when_it_is_verified(kept, log):
    kept.write_bytes(changed(kept.read_bytes()))
    with pytest.raises(StorageError, match=f"line 1 of the audit .* {DAMAGED} 0"):
        log.verify()


def test_an_audit_that_is_cut_off_while_it_is_used_is_refused(kept, log):
    os.truncate(kept, 100)
    with pytest.raises(StorageError, match="was cut off after 100 of"):
        log.append([an_event(9)])


def test_an_event_of_a_kind_this_version_does_not_know_is_told_by_its_line(home, kept, log):
    lines = kept.read_bytes().splitlines()
    body = lines[4][: lines[4].index(b',"chain"')].replace(b'"halted"', b'"danced"')
    chain = json.loads(lines[3])["chain"]
    mark = hashlib.sha256(chain.encode() + body).hexdigest().encode()
    kept.write_bytes(b"\n".join([*lines[:4], body + b',"chain":"' + mark + b'"}']) + b"\n")
    with pytest.raises(StorageError, match="line 5 of the audit is no event that this version knows"):
        JsonlAudit(home).events()


@pytest.mark.parametrize("n_bytes", [1, 40, 200, -1], ids=lambda n: f"{n} bytes")
def test_a_row_torn_by_a_power_cut_is_set_aside_and_the_rest_stays(home, kept, caplog, n_bytes):
    whole = kept.read_bytes()
    torn = whole.splitlines()[0][:n_bytes] if n_bytes > 0 else whole.splitlines()[0]  # whole, but for its end
    kept.write_bytes(whole + torn)
    reader = JsonlAudit(home)
    assert reader.verify().torn
    assert len(reader.events()) == 5
    assert kept.read_bytes() == whole + torn
    JsonlAudit(home).append([an_event(5)])
    state = reader.verify()
    assert (state.n_rows, state.torn) == (6, False)
    assert [path.read_bytes() for path in state.set_aside] == [torn]
    assert "it is set aside as" in caplog.text


def test_a_full_disk_keeps_nothing_and_leaves_the_audit_whole(home, kept, monkeypatch):
    log, before = JsonlAudit(home), kept.read_bytes()

    def full(handle):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StorageError, match="cannot be written: No space left on device; nothing was kept"):
        log.append([an_event(9)])
    monkeypatch.undo()
    assert kept.read_bytes() == before
    log.append([an_event(9)])
    assert log.verify().n_rows == 6


WRITERS = ['pat","account":"other","session":"1999-01-01', "back\\", "Zo\u00eb", '"', ""]


@pytest.mark.parametrize("by", WRITERS)
@pytest.mark.parametrize("place", [{}, {"account": "paper"}, {"account": 'o"dd', "session": date(2021, 12, 30)}])
def test_account_and_year_of_a_row_are_those_of_its_event_whoever_wrote_it(log, by, place):
    log.append([an_event(by=by).model_copy(update=place)])
    (row,) = log.rows()
    assert row.account == row.event.account == place.get("account")
    assert row.session_year == (2021 if "session" in place else None)


def test_two_processes_append_all_their_events_once(home, log):
    workers = [appender(home, who, 40) for who in ("left", "right")]
    for worker in workers:
        worker.communicate(timeout=60)
        assert worker.returncode == 0
    events = log.events()
    by = {who: [each.event_id for each in events if each.by == who] for who in ("left", "right", "both")}
    for who, ids in by.items():
        assert ids == [an_event(i, by=who).event_id for i in range(40)]
    assert log.verify().n_rows == 120


def test_what_was_appended_is_kept_by_a_process_that_is_killed(home, log):
    worker = appender(home, "killed", 100_000)
    told = -1
    assert worker.stdout
    while told < 20:
        told = int(worker.stdout.readline())
    worker.send_signal(signal.SIGKILL)
    told = max([told, *map(int, worker.communicate()[0].split())])
    log.append([an_event(0, by="next")])
    assert log.verify().n_rows == len(log.events())
    kept = {each.event_id for each in log.events()}
    assert all(an_event(i, by=who).event_id in kept for i in range(told + 1) for who in ("killed", "both"))
