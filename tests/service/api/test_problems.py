"""Statuses of errors: a disk that cannot be written is no fault of the request."""

import errno
import sqlite3

import pytest

from nvtrader_pipelines.service.api.problems import status_of
from nvtrader_pipelines.storage.errors import ConflictError, NotFoundError, StorageError
from nvtrader_pipelines.storage.kill_switch import FileKillSwitch
from tests.service.api.conftest import AUTHORIZED, client_of

FULL, READ_ONLY, CLOSED = (OSError(number, "fault") for number in (errno.ENOSPC, errno.EROFS, errno.EACCES))


def fault(code):
    error = sqlite3.OperationalError("fault")
    error.sqlite_errorcode = code
    return error


@pytest.mark.parametrize("wrapper", [StorageError, ValueError, ConflictError, NotFoundError])
@pytest.mark.parametrize(
    ("cause", "is_fault"),
    [
        (FULL, True),
        (READ_ONLY, True),
        (CLOSED, True),
        (fault(sqlite3.SQLITE_FULL), True),
        (fault(sqlite3.SQLITE_READONLY_DIRECTORY), True),
        (fault(sqlite3.SQLITE_CONSTRAINT), False),
        (FileNotFoundError(errno.ENOENT, "missing"), False),
        (KeyError("name"), False),
    ],
)
def test_status_of_error_caused_by_disk_is_503(wrapper, cause, is_fault):
    error = wrapper("refused")
    error.__cause__ = StorageError("inner")
    error.__cause__.__cause__ = cause
    assert (status_of(error) == 503) == is_fault


@pytest.mark.slow
@pytest.mark.parametrize("error", [FULL, READ_ONLY, CLOSED], ids=["full", "read-only", "closed"])
def test_halt_on_unwritable_audit_answers_503_and_engages(home, monkeypatch, error):
    def refuse(*_arguments):
        raise error

    home.kill_switch.parent.mkdir(parents=True, exist_ok=True)
    monkeypatch.setattr("nvtrader_pipelines.storage.audit_log.JsonlAudit._write", refuse)
    monkeypatch.setattr("nvtrader_pipelines.storage.kill_switch.write_atomically", refuse)
    answer = client_of(home).post("/api/kill-switch", json={"engaged": True, "reason": "drill"}, headers=AUTHORIZED)
    assert (answer.status_code, answer.json()["status"]) == (503, 503)
    assert FileKillSwitch(home).halt_reason()
