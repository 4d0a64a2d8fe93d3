"""Book of an account in Postgres, a schema `book_<account>`."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import sqlalchemy as sa

from nvtrader_pipelines.storage.account_book import AccountBook
from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.postgres import in_transaction

PREFIX = "book_"  # of the schema of a book
MAX_LENGTH = 63 - len(PREFIX)  # Postgres cuts longer names of schemas
METADATA = sa.MetaData()


def _define(name: str, *columns: str) -> None:
    texts = [sa.Column(column, sa.Text, nullable=False, index=column == "plan_id") for column in columns[1:]]
    order = [] if name == "states" else [sa.Column("rowid", sa.BigInteger, sa.Identity(), nullable=False)]  # of SQLite
    sa.Table(name, METADATA, sa.Column(columns[0], sa.Text, primary_key=True), *texts, *order)


_define("states", "session", "document")
_define("orders", "order_id", "plan_id", "status", "reason", "document")
_define("fills", "order_id", "plan_id", "document")


def booked_accounts(url: sa.URL) -> list[str]:
    """Accounts that have a book, sorted."""
    with in_transaction("books", url, "public") as connection:
        schemas = sa.inspect(connection).get_schema_names()
    return sorted(schema.removeprefix(PREFIX) for schema in schemas if schema.startswith(PREFIX))


class PostgresBook(AccountBook):
    """Schema of Postgres with an account's states, orders and fills; reading never creates it."""

    def __init__(self, url: sa.URL, account: str) -> None:
        if len(account) > MAX_LENGTH:
            raise StorageError(
                f"an account's name must have at most {MAX_LENGTH} characters in Postgres, but {account} has "
                f"{len(account)}; shorten it"
            )
        self._url, self._schema, self._is_complete = url, f"{PREFIX}{account}", False
        self._require_lock: Callable[[], None] = lambda: None

    @property
    def name(self) -> str:
        """URL of the database without its password, and the schema."""
        return f"{self._url.render_as_string(hide_password=True)}, schema {self._schema}"

    @property
    def exists(self) -> bool:
        """Whether the account has a book."""
        with self.reading() as connection:
            return sa.inspect(connection).has_table("states")

    def fence(self, require_lock: Callable[[], None]) -> None:
        """Refuse to write once the lock of the account is lost."""
        self._require_lock = require_lock

    def close(self) -> None:
        """Do nothing, since every transaction returns its connection."""

    def reading(self) -> AbstractContextManager[sa.Connection]:
        """Begin a transaction that creates nothing."""
        return in_transaction("book", self._url, self._schema)

    @contextmanager
    def writing(self) -> Iterator[sa.Connection]:
        """Begin a transaction, with all tables."""
        self._require_lock()
        with in_transaction("book", self._url, self._schema, None if self._is_complete else METADATA) as connection:
            yield connection
        self._is_complete = True

    def _rows(self, query: str, *values: str) -> list[tuple[Any, ...]]:
        with self.reading() as connection:
            if connection.scalar(sa.select(sa.func.to_regclass("states"))) is None:
                return []
            return [tuple(row) for row in _Statements(connection).execute(query, values)]

    @contextmanager
    def _transaction(self) -> Iterator["_Statements"]:
        with self.writing() as connection:
            yield _Statements(connection)


class _Statements:
    """Connection that takes the statements of SQLite."""

    def __init__(self, connection: sa.Connection) -> None:
        self._connection = connection

    def execute(self, query: str, values: tuple[str, ...] = ()) -> sa.CursorResult[Any]:
        return self._connection.exec_driver_sql(query.replace("?", "%s"), values)
