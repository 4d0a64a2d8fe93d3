"""Book of an account: its queries, and its SQLite file `data/runtime/accounts/<account>.db`."""

import sqlite3
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from datetime import date
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol, TypeVar

from pydantic import BaseModel, ValidationError

from nvtrader_pipelines.execution.book import AccountState, BookedOrder, BookIndex
from nvtrader_pipelines.execution.errors import RESTORE_STEPS
from nvtrader_pipelines.execution.orders import Fill
from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.files import create_aside
from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.read_sources import note_read

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
PROBE = "SELECT 1 FROM sqlite_master"
SETUP = f"PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; BEGIN IMMEDIATE; {SCHEMA} COMMIT;"  # all tables or none
OPEN_STATUS = "accepted"
REMEDY = f"{RESTORE_STEPS}, or trade another account"
Document = TypeVar("Document", bound=BaseModel)


def book_path(home: Home, account: str) -> Path:
    """Path of an account's book."""
    return home.runtime / "accounts" / f"{account}.db"


class Statements(Protocol):
    """Transaction of a book."""

    def execute(self, query: str, values: tuple[str, ...] = ..., /) -> Any:
        """Execute a statement with a ? for each value."""


class AccountBook(ABC):
    """States, orders and fills of an account; reading never creates a book.

    Every method that writes is one durable transaction.

    Raises:
        StorageError: from every method, if the file or database cannot be used as a book.
    """

    @property
    @abstractmethod
    def name(self) -> str:
        """Where the book is, for sentences."""

    @property
    @abstractmethod
    def exists(self) -> bool:
        """Whether the account has a book."""

    @abstractmethod
    def fence(self, require_lock: Callable[[], None]) -> None:
        """Refuse to write once the lock of the account is lost."""

    @abstractmethod
    def close(self) -> None:
        """Close the connection."""

    @abstractmethod
    def _rows(self, query: str, *values: str) -> list[tuple[Any, ...]]: ...

    @abstractmethod
    def _transaction(self) -> AbstractContextManager[Statements]: ...

    def index(self) -> BookIndex:
        """Sessions, orders and fills that the book holds."""
        sessions = (date.fromisoformat(day) for (day,) in self._rows("SELECT session FROM states"))
        orders, fills = (self._rows(f"SELECT order_id FROM {table}") for table in ("orders", "fills"))
        return BookIndex(frozenset(sessions), frozenset(key for (key,) in orders), frozenset(key for (key,) in fills))

    def last(self) -> AccountState | None:
        """State at the last settled close, or None before the account is opened."""
        rows = self._rows("SELECT document FROM states ORDER BY session DESC LIMIT 1")
        return self._read(AccountState, rows[0][0]) if rows else None

    def at(self, session: date) -> AccountState | None:
        """State at the close of a session, or None if that session was not settled."""
        rows = self._rows("SELECT document FROM states WHERE session = ?", session.isoformat())
        return self._read(AccountState, rows[0][0]) if rows else None

    def opening(self) -> date | None:
        """Session at whose close the account was opened, or None before that."""
        ((session,),) = self._rows("SELECT MIN(session) FROM states") or [(None,)]
        return date.fromisoformat(session) if session is not None else None

    def states(self) -> list[AccountState]:
        """States at every settled close, oldest first."""
        rows = self._rows("SELECT document FROM states ORDER BY session")
        return [self._read(AccountState, document) for (document,) in rows]

    def newest_states(self, n_states: int) -> list[AccountState]:
        """States at the last settled closes, newest first."""
        rows = self._rows("SELECT document FROM states ORDER BY session DESC LIMIT ?", str(n_states))
        return [self._read(AccountState, document) for (document,) in rows]

    def settle(self, state: AccountState) -> None:
        """Store a state; the state of a session that is already stored stays as it is."""
        with self._transaction() as book:
            row = (state.session.isoformat(), state.model_dump_json())
            book.execute("INSERT INTO states VALUES (?, ?) ON CONFLICT DO NOTHING", row)

    def place(self, *orders: BookedOrder) -> None:
        """Store orders atomically; an order whose id is already stored stays as it is."""
        with self._transaction() as book:
            for booked in orders:
                order = booked.order
                row = (order.order_id, order.plan_id, booked.status, booked.reason, order.model_dump_json())
                book.execute("INSERT INTO orders VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING", row)

    def orders(self, plan_id: str) -> list[BookedOrder]:
        """Orders of a plan, in the sequence they were placed."""
        return self._orders("WHERE plan_id = ?", plan_id)

    def open_orders(self) -> list[BookedOrder]:
        """Accepted orders that are neither filled nor cancelled."""
        return self._orders("WHERE status = ?", OPEN_STATUS)

    def cancel(self, order_id: str, reason: str) -> None:
        """Cancel an order if it is open."""
        with self._transaction() as book:
            _cancel(book, order_id, reason)

    def fill(self, fills: Sequence[Fill], rest: Mapping[str, str]) -> None:
        """Store a plan's fills and cancel the orders in `rest` (order id to reason), atomically."""
        with self._transaction() as book:
            for fill in fills:
                order = "SELECT order_id, plan_id, ? FROM orders WHERE order_id = ? AND status = ?"
                values = (fill.model_dump_json(), fill.order_id, OPEN_STATUS)
                book.execute(f"INSERT INTO fills {order} ON CONFLICT DO NOTHING", values)
                book.execute("UPDATE orders SET status = 'filled' WHERE order_id = ? AND status = ?", values[1:])
            for order_id, reason in rest.items():
                _cancel(book, order_id, reason)

    def fills(self, plan_id: str) -> list[Fill]:
        """Fills of a plan's orders, in the sequence they were stored."""
        rows = self._rows("SELECT document FROM fills WHERE plan_id = ? ORDER BY rowid", plan_id)
        return [self._read(Fill, document) for (document,) in rows]

    def clear(self) -> None:
        """Remove all states, orders and fills, atomically."""
        with self._transaction() as book:
            for table in ("states", "orders", "fills"):
                book.execute(f"DELETE FROM {table}")

    def _orders(self, where: str, value: str) -> list[BookedOrder]:
        rows = self._rows(f"SELECT document, status, reason FROM orders {where} ORDER BY rowid", value)
        return [
            self._read(BookedOrder, f'{{"order": {document}, "status": "{status}"}}').model_copy(
                update={"reason": reason}
            )
            for document, status, reason in rows
        ]

    def _read(self, model: type[Document], document: str) -> Document:
        with _storage_errors(self.name):
            return model.model_validate_json(document)


class SqliteBook(AccountBook):
    """SQLite file with an account's states, orders and fills."""

    def __init__(self, home: Home, account: str) -> None:
        self.path, self._account = book_path(home, account), account

    @property
    def name(self) -> str:
        """Path of the file."""
        return str(self.path)

    @property
    def exists(self) -> bool:
        """Whether the account has a book; none has a name with a path."""
        return self.path.name == f"{self._account}.db" and self.path.exists()

    def fence(self, require_lock: Callable[[], None]) -> None:
        """Do nothing, since a lock of a file lasts as long as its process."""

    def close(self) -> None:
        """Close the connection."""
        if "_book" in self.__dict__:
            self._book.close()
            del self._book

    def create(self) -> None:
        """Create the file if it is missing."""
        _ = self._book
        self.close()

    def _rows(self, query: str, *values: str) -> list[tuple[Any, ...]]:
        note_read(self.path)
        if not self.path.exists():
            return []
        _require_content(self.path)
        with _storage_errors(self.name), self._read_connection() as book:
            has_tables = book.execute(PROBE).fetchone()
            return book.execute(query, values).fetchall() if has_tables else []

    @contextmanager
    def _read_connection(self) -> Iterator[sqlite3.Connection]:
        """Reuse the open connection, or open one that leaves no -wal or -shm file behind."""
        if "_book" in self.__dict__:
            yield self._book
            return
        # SQLite removes both at the last close, but not in mode `ro`
        with closing(_connect(self.path, "rw", PROBE)) as book:
            yield book

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with _storage_errors(self.name), self._book:
            yield self._book

    @cached_property
    def _book(self) -> sqlite3.Connection:
        if not self.path.exists():
            with create_aside(self.path) as new:
                _connect(new, "rwc", SETUP).close()
        _require_content(self.path)
        book = _connect(self.path, "rw", SETUP)
        weakref.finalize(self, book.close)
        return book


@contextmanager
def _storage_errors(name: str) -> Iterator[None]:
    try:
        yield
    except (sqlite3.Error, ValidationError) as error:
        is_intact = isinstance(error, sqlite3.OperationalError)  # a lock or a full disk, no damage
        remedy = "fix that and try again" if is_intact else REMEDY
        raise StorageError(f"{name} cannot be used as the book of an account ({error}); {remedy}") from error


def _require_content(path: Path) -> None:
    if not path.stat().st_size:
        raise StorageError(f"{path}, the book of an account, is empty; {REMEDY}")


def _connect(path: Path, mode: str, script: str) -> sqlite3.Connection:
    address = f"{path.absolute().as_uri()}?mode={mode}"
    # a garbage collection in any thread may close it
    book = sqlite3.connect(address, timeout=10.0, uri=True, check_same_thread=False)
    try:
        book.executescript(script)
    except sqlite3.Error:
        book.close()
        raise
    return book


def _cancel(book: Statements, order_id: str, reason: str) -> None:
    update = "UPDATE orders SET status = 'cancelled', reason = ? WHERE order_id = ? AND status = ?"
    book.execute(update, (reason, order_id, OPEN_STATUS))
