"""Audit rows are appended once, survive a kill, and cannot be changed unnoticed."""

import hashlib
import json
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import date, timedelta

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nvtrader_pipelines.execution.audit import AuditEvent, event_id
from nvtrader_pipelines.storage.audit_log import FIRST_CHAIN, JsonlAudit
from nvtrader_pipelines.storage.errors import StorageError
from tests.execution.plans import AT, a_plan, constructed, judged

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


def halt_event(i=0, by="pat", text="why", **detail):
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
def written(home, log):
    """File of an audit with five rows."""
    log.append([halt_event(i) for i in range(5)])
    return log.path


def test_missing_audit_reads_as_empty_and_is_not_created(home, log):
    assert list(log.events()) == []
    assert (log.verify().n_rows, log.verify().chain) == (0, FIRST_CHAIN)
    assert not home.audit.exists()


def test_events_are_read_back_unchanged_and_in_order(home, log):
    plan = a_plan()
    events = [constructed(plan), judged(plan, "soft", "warn"), halt_event(3, weight=0.1 + 0.2)]
    log.append(events[:2])
    log.append(events[2:])
    assert [each.model_dump(mode="json") for each in JsonlAudit(home).events()] == [
        each.model_dump(mode="json") for each in events
    ]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50)
@given(value=st.floats(allow_nan=False, allow_infinity=False), text=st.text(st.characters(codec="utf-8")))
def test_numbers_and_text_are_stored_exactly(home, value, text):
    JsonlAudit(home).path.unlink(missing_ok=True)
    JsonlAudit(home).append([halt_event(0, by=text, text=text, value=value, words=[text])])
    (found,) = JsonlAudit(home).events()
    assert (found.by, found.reason, found.detail["words"]) == (text, text, [text])
    assert found.detail["value"].hex() == value.hex()


def test_row_is_a_json_line_chained_to_the_row_before(written):
    chain = FIRST_CHAIN
    for line in written.read_text().splitlines():
        document = json.loads(line)
        found = document.pop("chain")
        body = line[: line.index(',"chain"')]
        chain = hashlib.sha256((chain + body).encode()).hexdigest()
        assert found == chain
        assert AuditEvent.model_validate(document)


def test_event_with_a_stored_id_is_skipped(log):
    log.append([halt_event(0, text="first"), halt_event(0, text="same batch"), halt_event(1)])
    log.append([halt_event(0, text="later"), halt_event(2)])
    assert [each.reason for each in log.events()] == ["first", "why", "why"]


def test_events_can_be_filtered_by_account(log):
    ours, theirs = constructed(a_plan()), constructed(a_plan(account="other"))
    log.append([ours, theirs, halt_event()])
    assert [each.event_id for each in log.events("other")] == [theirs.event_id]
    assert len(log.events()) == 3


def test_events_before_the_last_reset_of_their_account_are_rows_only(home, log):
    ours, theirs = constructed(a_plan()), constructed(a_plan(account="other"))
    resets = [halt_event(i).model_copy(update={"kind": "reset", "account": ours.account}) for i in (7, 8)]
    later = judged(a_plan(), "soft")
    log.append([ours, theirs, halt_event(), *resets, later])
    for read in (log, JsonlAudit(home)):
        assert [each.event_id for each in read.events(ours.account)] == [resets[1].event_id, later.event_id]
        assert [each.event_id for each in read.events("other")] == [theirs.event_id]
        assert len(read.events()) == 4
        assert len(read.rows()) == 6


def test_append_of_another_instance_is_seen(home, log):
    log.append([halt_event(0)])
    other = JsonlAudit(home)
    other.append([halt_event(1)])
    log.append([halt_event(1, text="again"), halt_event(2)])
    assert [each.reason for each in other.events()] == ["why", "why", "why"]


def test_threads_that_share_a_log_append_and_read_every_event(log):
    def append(i):
        log.append([halt_event(i)])
        return len(log.events())

    with ThreadPoolExecutor(8) as threads:
        seen = list(threads.map(append, range(200)))
    assert max(seen) == 200
    assert {event.event_id for event in log.events()} == {halt_event(i).event_id for i in range(200)}


@pytest.mark.parametrize(
    "value", [float("nan"), float("inf"), object(), "\ud800"], ids=["NaN", "infinity", "object", "surrogate"]
)
def test_event_that_is_no_json_is_refused_and_nothing_appended(log, value):
    with pytest.raises(StorageError):
        log.append([halt_event(0), halt_event(1, value=value)])
    assert list(log.events()) == []


def change_reason(line):
    return line.replace(b'"reason":"why"', b'"reason":"not"')


TAMPERINGS = {
    "a row is changed": (lambda lines: [*lines[:2], change_reason(lines[2]), *lines[3:]], 3),
    "the first row is changed": (lambda lines: [change_reason(lines[0]), *lines[1:]], 1),
    "the last row is changed": (lambda lines: [*lines[:4], change_reason(lines[4])], 5),
    "a row is removed": (lambda lines: [*lines[:1], *lines[2:]], 2),
    "the first row is removed": (lambda lines: lines[1:], 1),
    "a row occurs twice": (lambda lines: [*lines[:3], lines[2], *lines[3:]], 4),
    "two rows change places": (lambda lines: [lines[0], lines[2], lines[1], *lines[3:]], 2),
    "a row is added by hand": (lambda lines: [*lines, b'{"kind":"approved"}'], 6),
    "a row is empty": (lambda lines: [*lines[:3], b"", *lines[3:]], 4),
    "a row is zeros": (lambda lines: [*lines[:3], b"\0" * 300, *lines[4:]], 4),
    "a row is cut in the middle": (lambda lines: [*lines[:3], lines[3][:80], lines[4]], 4),
}


@pytest.mark.parametrize("name", TAMPERINGS)
def test_change_by_hand_is_found_with_its_line(home, written, name):
    tamper, line = TAMPERINGS[name]
    written.write_bytes(b"\n".join(tamper(written.read_bytes().splitlines())) + b"\n")
    before = written.read_bytes()
    for use in (JsonlAudit(home).verify, JsonlAudit(home).events, lambda: JsonlAudit(home).append([halt_event(9)])):
        with pytest.raises(StorageError, match=f"line {line} of"):
            use()
    assert written.read_bytes() == before


def test_verify_finds_a_row_changed_after_it_was_read(written, log):
    written.write_bytes(change_reason(written.read_bytes()))
    with pytest.raises(StorageError):
        log.verify()


def test_truncated_audit_is_refused_by_an_open_log(written, log):
    os.truncate(written, 100)
    with pytest.raises(StorageError):
        log.append([halt_event(9)])


def test_event_of_unknown_kind_is_refused_with_its_line(home, written, log):
    lines = written.read_bytes().splitlines()
    body = lines[4][: lines[4].index(b',"chain"')].replace(b'"halted"', b'"danced"')
    chain = json.loads(lines[3])["chain"]
    mark = hashlib.sha256(chain.encode() + body).hexdigest().encode()
    written.write_bytes(b"\n".join([*lines[:4], body + b',"chain":"' + mark + b'"}']) + b"\n")
    with pytest.raises(StorageError, match="line 5 of"):
        JsonlAudit(home).events()


@pytest.mark.parametrize("n_bytes", [1, 40, 200, -1], ids=lambda n: f"{n} bytes")
def test_incomplete_last_row_is_set_aside_and_the_rest_stays(home, written, caplog, n_bytes):
    whole = written.read_bytes()
    torn = (
        whole.splitlines()[0][:n_bytes] if n_bytes > 0 else whole.splitlines()[0]
    )  # the whole row without its line end
    written.write_bytes(whole + torn)
    reader = JsonlAudit(home)
    assert len(reader.events()) == 5
    assert written.read_bytes() == whole + torn
    JsonlAudit(home).append([halt_event(5)])
    state = reader.verify()
    assert state.n_rows == 6
    assert [path.read_bytes() for path in state.set_aside] == [torn]
    assert "is set aside as" in caplog.text


def test_append_on_a_full_disk_leaves_the_audit_unchanged(home, written, monkeypatch):
    log, before = JsonlAudit(home), written.read_bytes()

    def full(handle):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StorageError):
        log.append([halt_event(9)])
    monkeypatch.undo()
    assert written.read_bytes() == before
    log.append([halt_event(9)])
    assert log.verify().n_rows == 6


WRITERS = ['pat","account":"other","session":"1999-01-01', "back\\", "Zo\u00eb", '"', ""]


@pytest.mark.parametrize("by", WRITERS)
@pytest.mark.parametrize("place", [{}, {"account": "paper"}, {"account": 'o"dd', "session": date(2021, 12, 30)}])
def test_row_account_and_year_match_its_event_for_any_author(log, by, place):
    log.append([halt_event(by=by).model_copy(update=place)])
    (row,) = log.rows()
    assert row.account == row.event.account == place.get("account")
    assert row.session_year == (2021 if "session" in place else None)


@pytest.mark.slow
def test_concurrent_processes_append_every_event_once(home, log):
    workers = [appender(home, who, 40) for who in ("left", "right")]
    for worker in workers:
        worker.communicate(timeout=60)
        assert worker.returncode == 0
    events = log.events()
    by = {who: [each.event_id for each in events if each.by == who] for who in ("left", "right", "both")}
    for who, ids in by.items():
        assert ids == [halt_event(i, by=who).event_id for i in range(40)]
    assert log.verify().n_rows == 120


@pytest.mark.slow
def test_appended_events_survive_a_kill(home, log):
    worker = appender(home, "killed", 100_000)
    last = -1
    assert worker.stdout
    while last < 20:
        last = int(worker.stdout.readline())
    worker.send_signal(signal.SIGKILL)
    last = max([last, *map(int, worker.communicate()[0].split())])
    log.append([halt_event(0, by="next")])
    assert log.verify().n_rows == len(log.events())
    ids = {each.event_id for each in log.events()}
    assert all(halt_event(i, by=who).event_id in ids for i in range(last + 1) for who in ("killed", "both"))
