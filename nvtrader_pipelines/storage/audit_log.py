"""The audit on disk: one file of JSON lines, only ever appended to, each row chained to the row before it.

One file and not one per year: the chain is one sequence, whatever moments its rows tell of, and a desk adds a few
thousand rows a year. What a chain cannot show, that its last rows were cut off, the books of the accounts do before
they are traded, as each order and fill of theirs must be told; and the mirror in `portfolio.audit`, of every row.
"""

import errno
import hashlib
import json
import logging
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from pydantic import ValidationError

from nvtrader_pipelines.execution.audit import AuditEvent
from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.files import locked, write_atomically
from nvtrader_pipelines.storage.home import Home

START = "0" * 64  # what the first row is chained to
_BEGIN = b'{"event_id":"'
_MARK = b',"chain":"'  # a row is the event's JSON with its chain as the last field: the JSON up to here is hashed
_SUFFIX = len(_MARK) + len(START) + len(b'"}')
_HEAD = re.compile(  # of a row, in the order of the event's fields; an account's name has nothing that is escaped
    rb'\{"event_id":"[0-9a-f]{16}","kind":"\w+","at":"[^"]*","by":"(?:[^"\\]|\\.)*",'
    rb'"account":(?:null|"([^"\\]*)"),"session":(?:null|"(\d+))'
)
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class AuditRow:
    """One row of the file."""

    line: int  # from 1
    body: bytes  # the event's JSON without the bracket that closes it
    chain: str  # SHA-256 of the chain of the row before and of the body

    @property
    def event_id(self) -> str:
        """The id of its event, without reading the rest."""
        return self.body[len(_BEGIN) : len(_BEGIN) + 16].decode()

    @cached_property
    def account(self) -> str | None:
        """The account of its event, without reading the rest."""
        head = _HEAD.match(self.body)
        if head:
            return None if head[1] is None else head[1].decode()
        return self.event.account

    @property
    def session_year(self) -> int | None:
        """The year of its event's session, without reading the rest; None where it has no session."""
        head = _HEAD.match(self.body)
        if head:
            return int(head[2]) if head[2] else None
        return self.event.session and self.event.session.year

    @cached_property
    def event(self) -> AuditEvent:
        """Its event; reading them all takes ten times as long as checking the chain.

        Raises:
            StorageError: if this version knows no such event.
        """
        try:
            return AuditEvent.model_validate_json(self.body + b"}")
        except ValidationError as error:
            raise StorageError(
                f"line {self.line} of the audit is no event that this version knows: {error.errors()[0]['msg']}"
            ) from error

    @property
    def content(self) -> bytes:
        """Its line in the file."""
        return self.body + _closed(self.chain) + b"\n"


@dataclass(frozen=True)
class AuditState:
    """What a whole reading of the audit found; every row is what was appended, and follows from the one before."""

    n_rows: int
    chain: str  # of the last row; kept elsewhere, it proves later that nothing up to here was changed or cut
    torn: bool  # whether the file ends in a part of a row, which the next append sets aside
    set_aside: tuple[Path, ...]  # parts of rows that a power cut or a full disk left, kept beside


class JsonlAudit:
    """The audit log of a home; any number of processes may append to it, each by an instance of its own."""

    def __init__(self, home: Home) -> None:
        self.path = home.audit / "events.jsonl"
        self._rows: list[AuditRow] = []
        self._ids: set[str] = set()
        self._end = 0  # bytes of the file that are in `_rows`

    def append(self, events: Sequence[AuditEvent]) -> None:
        """Keep events, durably when it returns; those whose id is kept already are left as they are.

        Raises:
            StorageError: if the audit is damaged, an event is no JSON, or the disk is full; then nothing is kept.
        """
        if not events:
            return
        try:
            with locked(self.path.with_name(".events.lock")):
                torn = self._refresh()
                if torn:
                    self._set_aside(torn)
                self._write(self._new(events))
        except OSError as error:
            raise StorageError(
                f"the audit {self.path} cannot be written: {error.strerror}; nothing was kept"
            ) from error

    def events(self, account: str | None = None) -> Sequence[AuditEvent]:
        """Every event in the order they were appended, of one account or of all.

        Raises:
            StorageError: if the audit is damaged.
        """
        return [row.event for row in self.rows() if account is None or row.account == account]

    def has(self, event: str) -> bool:
        """Whether an event of this id is kept.

        Raises:
            StorageError: if the audit is damaged.
        """
        if event not in self._ids:
            self._refresh()
        return event in self._ids

    def rows(self) -> Sequence[AuditRow]:
        """Every row, in order.

        Raises:
            StorageError: if the audit is damaged.
        """
        self._refresh()
        return self._rows

    def verify(self) -> AuditState:
        """Read the whole file again.

        Raises:
            StorageError: if a row is damaged, changed, missing or added, by its line.
        """
        self._rows, self._ids, self._end = [], set(), 0
        torn = bool(self._refresh())
        return AuditState(len(self._rows), self._chain, torn, tuple(sorted(self.path.parent.glob("torn-*"))))

    @property
    def _chain(self) -> str:
        return self._rows[-1].chain if self._rows else START

    def _refresh(self) -> bytes:
        """Read what was appended since; handed out is the last line where it does not end: it is not kept."""
        try:
            with self.path.open("rb") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(self._end)
                content = file.read()
        except FileNotFoundError:
            size, content = 0, b""
        except OSError as error:
            raise StorageError(f"the audit {self.path} cannot be read: {error.strerror}") from error
        if size < self._end:
            raise StorageError(
                f"the audit {self.path} was cut off after {size} of {self._end} bytes; put the whole file back"
            )
        *lines, torn = content.split(b"\n")
        for line in lines:
            self._keep(self._row(line))
        return torn

    def _row(self, line: bytes) -> AuditRow:
        number, body, chain = len(self._rows) + 1, line[:-_SUFFIX], line[-_SUFFIX:]
        wanted = _next_chain(self._chain, body)
        if chain != _closed(wanted):
            raise StorageError(
                f"line {number} of the audit {self.path} is not what was appended after line {number - 1}: a row was "
                "changed, removed or added by hand; put the file back as it was, portfolio.audit has what was mirrored"
            )
        return AuditRow(number, body, wanted)

    def _keep(self, row: AuditRow) -> None:
        self._rows.append(row)
        self._ids.add(row.event_id)
        self._end += len(row.content)

    def _new(self, events: Sequence[AuditEvent]) -> list[AuditRow]:
        """Rows of the events that are not kept yet."""
        chain, rows = self._chain, dict[str, AuditRow]()
        for event in events:
            if event.event_id not in self._ids and event.event_id not in rows:
                body = _body(event)
                chain = _next_chain(chain, body)
                rows[event.event_id] = AuditRow(len(self._rows) + len(rows) + 1, body, chain)
        return list(rows.values())

    def _write(self, rows: Sequence[AuditRow]) -> None:
        content = b"".join(row.content for row in rows)
        if not self.path.exists():
            write_atomically(self.path, b"")  # the folder's entry is synced too
        with self.path.open("r+b", buffering=0) as file:
            file.seek(self._end)
            try:
                if file.write(content) != len(content):
                    raise OSError(errno.ENOSPC, "the disk took a part of the rows only")
                os.fsync(file.fileno())
            except OSError:
                file.truncate(self._end)
                raise
        for row in rows:
            self._keep(row)

    def _set_aside(self, torn: bytes) -> None:
        """Keep a last line that never ended in a file of its own, and take it off this one."""
        aside = self.path.with_name(f"torn-{len(self._rows) + 1}-{hashlib.sha256(torn).hexdigest()[:8]}.jsonl")
        write_atomically(aside, torn)
        with self.path.open("r+b") as file:
            file.truncate(self._end)
            os.fsync(file.fileno())
        _LOG.warning("the audit ended in a part of a row, which was never kept: it is set aside as %s", aside)


def _body(event: AuditEvent) -> bytes:
    """The event's JSON without the bracket that closes it.

    Raises:
        StorageError: if it holds what JSON does not (NaN, infinity, an object).
    """
    try:
        document = json.dumps(event.model_dump(mode="json"), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        return document[:-1].encode()
    except ValueError as error:
        raise StorageError(
            f"the event {event.kind} of {event.symbol or event.plan_id or event.account} cannot be kept: {error}; "
            "its detail must be finite numbers, text, lists and mappings"
        ) from error


def _next_chain(chain: str, body: bytes) -> str:
    return hashlib.sha256(chain.encode() + body).hexdigest()


def _closed(chain: str) -> bytes:
    return _MARK + chain.encode() + b'"}'
