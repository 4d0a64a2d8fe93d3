"""The book of an account in SQLite: `data/runtime/accounts/<account>.db`, one transaction per effect."""

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from datetime import date
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from nvtrader_pipelines.execution.book import AccountState, BookedOrder, BookIndex
from nvtrader_pipelines.execution.errors import RESTORE_STEPS
from nvtrader_pipelines.execution.orders import Fill
from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.home import Home

SCHEMA = """
CREATE TABLE IF NOT EXISTS states (session TEXT PRIMARY KEY, document TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS orders (
    order_id TEXT PRIMARY KEY, plan_id TEXT NOT NULL, status TEXT NOT NULL, reason TEXT NOT NULL, document TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS orders_of_plan ON orders (plan_id);
CREATE INDEX IF NOT EXISTS orders_open ON orders (status) WHERE status = 'accepted';
CREATE TABLE IF NOT EXISTS fills (order_id TEXT PRIMARY KEY, plan_id TEXT NOT NULL, document TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS fills_of_plan ON fills (plan_id);
"""
READ = "SELECT 1 FROM sqlite_master"
WRITE = f"PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; BEGIN IMMEDIATE; {SCHEMA} COMMIT;"  # all tables or none
OPEN = "accepted"
Document = TypeVar("Document", bound=BaseModel)


def book_path(home: Home, account: str) -> Path:
    """Where an account's book lies."""
    return home.runtime / "accounts" / f"{account}.db"


class SqliteBook:
    """An account's book; reading one that is not there, or is empty, makes nothing.

    Raises:
        StorageError: by every method, if the file is no book.
    """

    def __init__(self, home: Home, account: str) -> None:
        self._path = book_path(home, account)

    def index(self) -> BookIndex:
        """What it has something of."""
        sessions = (date.fromisoformat(day) for (day,) in self._rows("SELECT session FROM states"))
        orders, fills = (self._rows(f"SELECT order_id FROM {table}") for table in ("orders", "fills"))
        return BookIndex(frozenset(sessions), frozenset(key for (key,) in orders), frozenset(key for (key,) in fills))

    def last(self) -> AccountState | None:
        """The account at the last close it was settled at; None where it is not open."""
        rows = self._rows("SELECT document FROM states ORDER BY session DESC LIMIT 1")
        return self._read(AccountState, rows[0][0]) if rows else None

    def at(self, session: date) -> AccountState | None:
        """The account at the close of one session; None where it was not settled there."""
        rows = self._rows("SELECT document FROM states WHERE session = ?", session.isoformat())
        return self._read(AccountState, rows[0][0]) if rows else None

    def opening(self) -> date | None:
        """The session the account was opened at; None where it is not open."""
        ((session,),) = self._rows("SELECT MIN(session) FROM states") or [(None,)]
        return date.fromisoformat(session) if session is not None else None

    def states(self) -> list[AccountState]:
        """The account at every close, the opening first."""
        rows = self._rows("SELECT document FROM states ORDER BY session")
        return [self._read(AccountState, document) for (document,) in rows]

    def settle(self, state: AccountState) -> None:
        """Keep a state; one of a session that is kept already is left as it is."""
        with self._transaction() as book:
            row = (state.session.isoformat(), state.model_dump_json())
            book.execute("INSERT OR IGNORE INTO states VALUES (?, ?)", row)

    def place(self, *orders: BookedOrder) -> None:
        """Keep orders together; one whose id is kept already is left as it is."""
        with self._transaction() as book:
            for each in orders:
                placed = each.order
                row = (placed.order_id, placed.plan_id, each.status, each.reason, placed.model_dump_json())
                book.execute("INSERT OR IGNORE INTO orders VALUES (?, ?, ?, ?, ?)", row)

    def orders(self, plan_id: str) -> list[BookedOrder]:
        """A plan's orders in the order they were placed."""
        return self._orders("WHERE plan_id = ?", plan_id)

    def open_orders(self) -> list[BookedOrder]:
        """Orders that are accepted and neither filled nor cancelled."""
        return self._orders("WHERE status = ?", OPEN)

    def cancel(self, order_id: str, reason: str) -> None:
        """Cancel an open order; one that is not open is left."""
        with self._transaction() as book:
            _cancel(book, order_id, reason)

    def fill(self, fills: Sequence[Fill], rest: Mapping[str, str]) -> None:
        """Keep the fills of a plan's orders together, and cancel those of `rest` (order id to reason)."""
        with self._transaction() as book:
            for fill in fills:
                of = "SELECT order_id, plan_id, ? FROM orders WHERE order_id = ? AND status = ?"
                book.execute(f"INSERT OR IGNORE INTO fills {of}", (fill.model_dump_json(), fill.order_id, OPEN))
                book.execute(
                    "UPDATE orders SET status = 'filled' WHERE order_id = ? AND status = ?", (fill.order_id, OPEN)
                )
            for order_id, reason in rest.items():
                _cancel(book, order_id, reason)

    def fills(self, plan_id: str) -> list[Fill]:
        """What was filled of a plan's orders."""
        rows = self._rows("SELECT document FROM fills WHERE plan_id = ? ORDER BY rowid", plan_id)
        return [self._read(Fill, document) for (document,) in rows]

    def close(self) -> None:
        """Let the file go."""
        if "_book" in self.__dict__:
            self._book.close()
            del self._book

    def _orders(self, where: str, value: str) -> list[BookedOrder]:
        rows = self._rows(f"SELECT document, status, reason FROM orders {where} ORDER BY rowid", value)
        return [
            self._read(BookedOrder, f'{{"order": {document}, "status": "{status}"}}').model_copy(
                update={"reason": reason}
            )
            for document, status, reason in rows
        ]

    def _read(self, model: type[Document], document: str) -> Document:
        with self._named():
            return model.model_validate_json(document)

    def _rows(self, query: str, *values: str) -> list[tuple[Any, ...]]:
        if not self._path.exists() or not self._path.stat().st_size:
            return []
        with self._named(), self._looked_into() as book:
            begun = book.execute(READ).fetchone()
            return book.execute(query, values).fetchall() if begun else []

    @contextmanager
    def _looked_into(self) -> Iterator[sqlite3.Connection]:
        """The connection that writes, where there is one; else one that leaves no -wal or -shm file beside the book."""
        if "_book" in self.__dict__:
            yield self._book
            return
        with closing(self._opened("rw", READ)) as book:  # the last that is closed takes those away; `ro` would not
            yield book

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._named(), self._book:
            yield self._book

    @contextmanager
    def _named(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, ValidationError) as error:
            hindered = isinstance(error, sqlite3.OperationalError)  # by a lock, a full disk: nothing of it is damaged
            remedy = "put that right, and try again" if hindered else f"{RESTORE_STEPS}, or trade another account"
            raise StorageError(f"{self._path} cannot be used as the book of an account ({error}); {remedy}") from error

    @cached_property
    def _book(self) -> sqlite3.Connection:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        return self._opened("rwc", WRITE)

    def _opened(self, mode: str, script: str) -> sqlite3.Connection:
        book = sqlite3.connect(f"{self._path.absolute().as_uri()}?mode={mode}", timeout=10.0, uri=True)
        try:
            book.executescript(script)
        except sqlite3.Error:
            book.close()
            raise
        return book


def _cancel(book: sqlite3.Connection, order_id: str, reason: str) -> None:
    book.execute(
        "UPDATE orders SET status = 'cancelled', reason = ? WHERE order_id = ? AND status = ?", (reason, order_id, OPEN)
    )
