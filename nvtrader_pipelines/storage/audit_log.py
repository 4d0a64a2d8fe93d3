"""Audit as an append-only file of JSON lines, each chained by hash to the one before.

One file rather than one per year: the chain is a single sequence, and a desk adds a few thousand rows a year. The chain
alone cannot show that its last rows were cut off. Two other checks do: every order and fill in an account's book must
have its event before the account trades, and `portfolio.audit` mirrors every row.
"""

import errno
import hashlib
import json
import logging
import os
import re
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from threading import RLock

from pydantic import ValidationError

from nvtrader_pipelines.execution.audit import AuditEvent
from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.files import write_atomically
from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.read_sources import note_read
from nvtrader_pipelines.storage.shared_files import SharedFiles

FIRST_CHAIN = "0" * 64  # stands for the row before the first
_BEGIN = b'{"event_id":"'
_KIND = len(_BEGIN) + 16 + len(b'","kind":"')  # where the kind begins
_MARK = b',"chain":"'  # a row is the event's JSON with its chain as last field; the JSON before the chain is hashed
_SUFFIX = len(_MARK) + len(FIRST_CHAIN) + len(b'"}')
_HEAD = re.compile(  # start of a row, in the order of the event's fields; account names hold no escaped characters
    rb'\{"event_id":"[0-9a-f]{16}","kind":"\w+","at":"[^"]*","by":"(?:[^"\\]|\\.)*",'
    rb'"account":(?:null|"([^"\\]*)"),"session":(?:null|"(\d+))'
)
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class AuditRow:
    """Row of the file."""

    line: int  # from 1
    body: bytes  # the event's JSON without its closing brace
    chain: str  # SHA-256 of the previous row's chain and this body

    @property
    def event_id(self) -> str:
        """Id of the event, without parsing the row."""
        return self.body[len(_BEGIN) : len(_BEGIN) + 16].decode()

    @property
    def kind(self) -> str:
        """Kind of the event, without parsing the row."""
        return self.body[_KIND:].partition(b'"')[0].decode()

    @cached_property
    def account(self) -> str | None:
        """Account of the event, without parsing the row where possible."""
        head = _HEAD.match(self.body)
        if head:
            return None if head[1] is None else head[1].decode()
        return self.event.account

    @property
    def session_year(self) -> int | None:
        """Year of the event's session, or None without a session; parses the row only where it must."""
        head = _HEAD.match(self.body)
        if head:
            return int(head[2]) if head[2] else None
        return self.event.session and self.event.session.year

    @cached_property
    def event(self) -> AuditEvent:
        """Event of the row. Parsing every event takes ten times as long as checking the chain.

        Raises:
            StorageError: if this version does not know such an event.
        """
        try:
            return AuditEvent.model_validate_json(self.body + b"}")
        except ValidationError as error:
            raise StorageError(
                f"line {self.line} of the audit is not an event that this version knows: {error.errors()[0]['msg']}"
            ) from error

    @property
    def content(self) -> bytes:
        """Line of the row in the file."""
        return self.body + _chain_suffix(self.chain) + b"\n"


@dataclass(frozen=True)
class AuditState:
    """Result of verifying the whole audit: the chain is intact from the first row to the last."""

    n_rows: int
    chain: str  # of the last row; a copy elsewhere proves later that nothing before it was changed or cut off
    set_aside: tuple[Path, ...]  # incomplete rows that a power cut or a full disk left, each in a file of its own


class JsonlAudit:
    """Audit log of a home; several processes may append to it, each with an instance that its threads share."""

    def __init__(self, home: Home) -> None:
        self.path, self._shared = home.audit / "events.jsonl", SharedFiles(home)
        self._rows: list[AuditRow] = []
        self._ids: set[str] = set()
        self._end = 0  # bytes of the file that are in `_rows`
        self._in_this_process = RLock()  # around reading and writing of the three

    def append(self, events: Sequence[AuditEvent]) -> None:
        """Append events durably; events whose id is already stored are skipped.

        Raises:
            StorageError: if the audit is damaged, an event is not valid JSON, the disk is full, or the object store
                cannot be reached; nothing is appended.
        """
        if not events:
            return
        try:
            with self._in_this_process, self.lock():
                self._pull()
                self._write(self._new_rows(events))
        except OSError as error:
            raise StorageError(
                f"the audit {self.path} cannot be written: {error.strerror}; nothing was appended"
            ) from error

    def lock(self) -> AbstractContextManager[None]:
        """Lock out appends of other processes."""
        return self._shared.lock(self.path.with_name(".events.lock"))

    def events(self, account: str | None = None) -> Sequence[AuditEvent]:
        """Events in the sequence they were appended, of one account or of all.

        Events before the last reset of their account are left out: they are history, as `rows`.

        Raises:
            StorageError: if the audit is damaged.
        """
        return [row.event for row in self.current_rows(account)]

    def current_rows(self, account: str | None = None) -> Sequence[AuditRow]:
        """Rows of one account or of all, from the last reset of their account on.

        Raises:
            StorageError: if the audit is damaged.
        """
        rows = self.rows()
        resets = {row.account: row.line for row in rows if row.kind == "reset"}
        wanted = (row for row in rows if account is None or row.account == account)
        return [row for row in wanted if row.line >= resets.get(row.account, 0)]

    def rows(self) -> Sequence[AuditRow]:
        """Rows in the sequence they were appended.

        Raises:
            StorageError: if the audit is damaged.
        """
        with self._in_this_process:
            self._read()
            return self._rows[:]

    def verify(self) -> AuditState:
        """Read the whole file again and check every row against the chain.

        Raises:
            StorageError: with the line of the first row that was damaged, changed, removed or added.
        """
        with self._in_this_process:
            self._rows, self._ids, self._end = [], set(), 0
            self._read()
        return AuditState(len(self._rows), self._chain, tuple(sorted(self.path.parent.glob("torn-*"))))

    @property
    def _chain(self) -> str:
        return self._rows[-1].chain if self._rows else FIRST_CHAIN

    def _read(self) -> None:
        """Read rows that this machine and others appended.

        Raises:
            StorageError: if the audit is damaged, or the object store cannot be reached: without the newest rows an
                order might be placed twice.
        """
        if self._shared.uri is None:
            self._refresh()
            return
        with self.lock():
            self._pull()

    def _pull(self) -> None:
        """Set an incomplete row aside, and read rows that other machines appended; requires the lock."""
        if torn := self._refresh():
            self._set_aside(torn)
        if self._shared.uri:
            self._shared.pull(self.path)
            self._refresh()

    def _refresh(self) -> bytes:
        """Read rows appended since the last read, and return the incomplete last line, if any."""
        note_read(self.path)
        try:
            with self.path.open("rb") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(self._end)
                content = file.read()
            if not size:
                raise StorageError(f"the audit {self.path} is empty; restore the file from a backup")
        except FileNotFoundError:
            size, content = 0, b""
        except OSError as error:
            raise StorageError(f"the audit {self.path} cannot be read: {error.strerror}") from error
        if size < self._end:
            raise StorageError(
                f"the audit {self.path} was cut off after {size} of {self._end} bytes; restore the whole file"
            )
        *lines, torn = content.split(b"\n")
        for line in lines:
            self._add(self._parse_row(line))
        return torn

    def _parse_row(self, line: bytes) -> AuditRow:
        number, body, chain = len(self._rows) + 1, line[:-_SUFFIX], line[-_SUFFIX:]
        expected = _next_chain(self._chain, body)
        if chain != _chain_suffix(expected):
            raise StorageError(
                f"line {number} of the audit {self.path} does not follow line {number - 1} in the chain: a row was "
                "changed, removed or added by hand; restore the file, portfolio.audit has the mirrored rows"
            )
        return AuditRow(number, body, expected)

    def _add(self, row: AuditRow) -> None:
        self._rows.append(row)
        self._ids.add(row.event_id)
        self._end += len(row.content)

    def _new_rows(self, events: Sequence[AuditEvent]) -> list[AuditRow]:
        """Rows for the events that are not stored yet."""
        chain, rows = self._chain, dict[str, AuditRow]()
        for event in events:
            if event.event_id not in self._ids and event.event_id not in rows:
                body = _body(event)
                chain = _next_chain(chain, body)
                rows[event.event_id] = AuditRow(len(self._rows) + len(rows) + 1, body, chain)
        return list(rows.values())

    def _write(self, rows: Sequence[AuditRow]) -> None:
        content = b"".join(row.content for row in rows)
        if rows:  # first, so that one chain decides; a machine that fails afterwards pulls the rows
            self._shared.extend(self.path, content)
        if self.path.exists():
            _extend(self.path, self._end, content)
        elif rows:
            write_atomically(self.path, content)  # never empty, so that an empty file is a damaged one
        for row in rows:
            self._add(row)

    def _set_aside(self, torn: bytes) -> None:
        """Move an incomplete last line to a file of its own."""
        aside = self.path.with_name(f"torn-{len(self._rows) + 1}-{hashlib.sha256(torn).hexdigest()[:8]}.jsonl")
        write_atomically(aside, torn)
        if self._end:
            with self.path.open("r+b") as file:
                file.truncate(self._end)
                os.fsync(file.fileno())
        else:
            self.path.unlink()
        _LOG.warning("the audit ended in an incomplete row; it was never committed and is set aside as %s", aside)


def _extend(path: Path, end: int, content: bytes) -> None:
    with path.open("r+b", buffering=0) as file:
        file.seek(end)
        try:
            if file.write(content) != len(content):
                raise OSError(errno.ENOSPC, "the disk took only part of the rows")
            os.fsync(file.fileno())
        except OSError:
            file.truncate(end)
            raise


def _body(event: AuditEvent) -> bytes:
    """JSON of an event without its closing brace.

    Raises:
        StorageError: if the detail holds a value that JSON does not have, such as NaN or an object.
    """
    try:
        document = json.dumps(event.model_dump(mode="json"), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        return document[:-1].encode()
    except ValueError as error:
        raise StorageError(
            f"the event {event.kind} of {event.symbol or event.plan_id or event.account} cannot be stored: {error}; "
            "its detail must be finite numbers, text, lists and mappings"
        ) from error


def _next_chain(chain: str, body: bytes) -> str:
    return hashlib.sha256(chain.encode() + body).hexdigest()


def _chain_suffix(chain: str) -> bytes:
    return _MARK + chain.encode() + b'"}'
