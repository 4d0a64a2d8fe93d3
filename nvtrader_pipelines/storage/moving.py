"""Move ledger, catalog, books and kill switch of a home between its files and the Postgres of its settings."""

import hashlib
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime

import sqlalchemy as sa
from pyiceberg.catalog.sql import SqlCatalogBaseTable

from nvtrader_pipelines.components.document import Document
from nvtrader_pipelines.storage import postgres_book as books
from nvtrader_pipelines.storage import postgres_switch as switches
from nvtrader_pipelines.storage.account_book import SqliteBook, book_path
from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.iceberg.catalog import SCHEMA as CATALOG
from nvtrader_pipelines.storage.iceberg.catalog import connect_file
from nvtrader_pipelines.storage.kill_switch import FileKillSwitch, Halt
from nvtrader_pipelines.storage.ledger.database import Database
from nvtrader_pipelines.storage.ledger.schema import METADATA
from nvtrader_pipelines.storage.postgres import in_transaction
from nvtrader_pipelines.storage.settings import LEDGER_VARIABLE, database_url

N_ROWS = 10_000  # of one insert


class MovedTable(Document):
    """Table that is equal on both sides, or the files of all tables."""

    table: str
    n_rows: int  # or files
    digest: str  # SHA-256 of its rows, or of the files' names and digests
    is_new: bool  # copied now, not there before


def move_databases(home: Home, *, back: bool) -> list[MovedTable]:
    """Copy what a home keeps in files or in its Postgres from the one to the other; the source stays as it is.

    Copied are the ledger, the catalog of the tables, the books of accounts and the kill switches.
    Tables that are equal already are left, so an interrupted move can be repeated.

    Raises:
        StorageError: if there is no setting, the ledger has a variable of its own, the target has other rows, a process
            writes meanwhile, or a database cannot be reached; the target then has all of a part, such as the ledger, or
            nothing of it.
    """
    url = database_url(home)
    if url is None:
        raise StorageError(
            "database_url must name the Postgres to move to or from, or warehouse_uri the object store; set one in "
            "nvtrader.toml or by variable"
        )
    if os.environ.get(LEDGER_VARIABLE):
        raise StorageError(f"the ledger must be where database_url says, but {LEDGER_VARIABLE} is set; unset it")
    file = sa.URL.create("sqlite", database=str(home.ledger))
    accounts = _booked(home, url, back=back)
    halts = in_transaction("kill switch", url, switches.SCHEMA, switches.METADATA)
    catalog = in_transaction("catalog", url, CATALOG, SqlCatalogBaseTable.metadata)
    parts = [
        ("kill switch", switches.METADATA, _switch_files(home), halts),  # first, so that no move releases it
        ("ledger", METADATA, _ledger(file), _ledger(url)),
        ("catalog", SqlCatalogBaseTable.metadata, _catalog_file(home), catalog),
    ]
    for account in accounts:
        places = (_book_file(home, account), books.PostgresBook(url, account).writing())
        parts.append((f"book {account}", books.METADATA, *places))
    moved = []
    for part, metadata, *places in parts:
        with ExitStack() as stack:
            source, target = (stack.enter_context(place) for place in (places[::-1] if back else places))
            moved += [_copy(part, table, source, target) for table in metadata.sorted_tables]
    return moved


def _booked(home: Home, url: sa.URL, *, back: bool) -> list[str]:
    """Accounts with a book to move, which must be all that have one in the target."""
    sides = [sorted(path.stem for path in book_path(home, "").parent.glob("*.db")), books.booked_accounts(url)]
    source, target = sides[::-1] if back else sides
    if others := sorted({*target} - {*source}):
        raise StorageError(
            f"books must be absent where they are moved to, but there are other rows of {', '.join(others)}; choose an "
            "empty database, or move the files away"
        )
    return source


@contextmanager
def _book_file(home: Home, account: str) -> Iterator[sa.Connection]:
    book = SqliteBook(home, account)
    book.create()
    engine = sa.create_engine(sa.URL.create("sqlite", database=str(book.path)))
    try:
        with engine.begin() as connection:
            yield connection
    finally:
        engine.dispose()


@contextmanager
def _switch_files(home: Home) -> Iterator[sa.Connection]:
    """Yield the halts of the files as a table in memory; rows that are added become files."""
    names = sorted(path.name for path in home.trading_states.glob("*"))
    switches_of_files = [FileKillSwitch(home, account) for account in (None, *names)]
    engaged = [switch for switch in switches_of_files if switch.file_reason()]
    engine = sa.create_engine("sqlite://")
    with engine.begin() as connection:
        switches.METADATA.create_all(connection)
        for switch in engaged:
            row = {"account": switch.account or "", "document": _halt(switch).model_dump_json()}
            connection.execute(sa.insert(switches.HALTS).values(row))
        yield connection
        for account, document in connection.execute(sa.select(switches.HALTS)):
            if account not in {switch.account or "" for switch in engaged}:
                FileKillSwitch(home, account or None).write(Halt.model_validate_json(document))
    engine.dispose()


def _halt(switch: FileKillSwitch) -> Halt:
    """Halt of a file, also of one that another program has made."""
    at = datetime.fromtimestamp(switch.path.lstat().st_mtime, UTC)
    return switch.read() or Halt(reason=switch.file_reason() or "", by="a file", at=at)


@contextmanager
def _ledger(url: sa.URL) -> Iterator[sa.Connection]:
    database = Database.connect(url)
    database.create()
    with database.transaction() as connection:  # in SQLite other writers wait
        yield connection


@contextmanager
def _catalog_file(home: Home) -> Iterator[sa.Connection]:
    home.iceberg.mkdir(parents=True, exist_ok=True)
    with connect_file(home, home.catalog).engine.begin() as connection:
        yield connection


def _copy(part: str, table: sa.Table, source: sa.Connection, target: sa.Connection) -> MovedTable:
    """Copy a table within a transaction of the target, and compare both sides."""
    name, expected, present = f"{part}.{table.name}", _digest(table, source), _digest(table, target)
    is_new = present != expected
    if is_new:
        if present[0]:
            raise StorageError(
                f"{name} must be empty where it is moved to, but has {present[0]:,} other rows; choose an empty "
                "database, or move the old file away"
            )
        for rows in source.execute(_ordered(table)).mappings().partitions(N_ROWS):
            target.execute(sa.insert(table), [dict(row) for row in rows])
        _advance_sequences(table, target)
        if not expected == _digest(table, source) == _digest(table, target):
            raise StorageError(f"{name} has changed while it was moved; stop the processes that write, and try again")
    n_rows, digest = expected
    return MovedTable(table=name, n_rows=n_rows, digest=digest, is_new=is_new)


def _ordered(table: sa.Table) -> sa.Select[tuple[object, ...]]:
    """Select all rows, in the order of the key; parents of versions come first, as they were registered first."""
    first = [table.c.created_at] if "created_at" in table.c else []
    return sa.select(table).order_by(*first, *table.primary_key.columns)


def _digest(table: sa.Table, connection: sa.Connection) -> tuple[int, str]:
    """Number and SHA-256 of the rows."""
    rows = sorted(repr(tuple(row)) for row in connection.execute(sa.select(table)))
    return len(rows), hashlib.sha256("\n".join(rows).encode()).hexdigest()


def _advance_sequences(table: sa.Table, target: sa.Connection) -> None:
    """Let Postgres number new rows after those copied."""
    column = next((column for column in table.c if column.identity), table.autoincrement_column)
    if target.dialect.name == "postgresql" and column is not None:
        sequence = sa.func.pg_get_serial_sequence(table.name, column.name)
        highest = sa.select(sa.func.max(column)).scalar_subquery()
        target.execute(sa.select(sa.func.setval(sequence, highest)).where(highest.is_not(None), sequence.is_not(None)))
