"""Looks of search sessions at sealed windows, as rows of the ledger."""

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, date, datetime

import sqlalchemy as sa

from nvtrader_pipelines.storage.ledger.schema import LOOKS


@dataclass(frozen=True)
class SealedWindow:
    """Data of a sealed window; two windows share data if they have a common name and session."""

    source: str
    symbols: frozenset[str]
    first: date
    last: date


CountLooks = Callable[[Iterable[SealedWindow]], int]  # of these windows of earlier looks, those that count


def open_look(
    connection: sa.Connection, window: SealedWindow, session_id: str, spec_hash: str, count_looks: CountLooks
) -> int:
    """Insert a look, or extend the window of the one that the session has, and return its number; see `Ledger`."""
    look = find_look(connection, session_id)
    if look is not None:
        is_shorter = (LOOKS.c.session_id == session_id, LOOKS.c.window_last < window.last)
        connection.execute(sa.update(LOOKS).where(*is_shorter).values(window_last=window.last))
        return look
    if connection.dialect.name == "postgresql":  # so that looks at once take turns; SQLite locks the file
        connection.execute(sa.text("LOCK TABLE looks IN SHARE ROW EXCLUSIVE MODE"))
    look = count_looks(read_sealed_windows(connection)) + 1
    row = {"session_id": session_id, "spec_hash": spec_hash, "source": window.source, "look": look}
    row |= {"symbols": json.dumps(sorted(window.symbols)), "opened_at": datetime.now(UTC)}
    row |= {"window_first": window.first, "window_last": window.last}
    connection.execute(sa.insert(LOOKS).values(row))
    return look


def find_look(connection: sa.Connection, session_id: str) -> int | None:
    """Number of the look of a session; None without a look."""
    return connection.execute(sa.select(LOOKS.c.look).where(LOOKS.c.session_id == session_id)).scalar()


def read_sealed_windows(connection: sa.Connection) -> list[SealedWindow]:
    """Sealed windows of all looks."""
    rows = connection.execute(sa.select(LOOKS.c.source, LOOKS.c.symbols, LOOKS.c.window_first, LOOKS.c.window_last))
    return [SealedWindow(source, frozenset(json.loads(symbols)), *days) for source, symbols, *days in rows]
