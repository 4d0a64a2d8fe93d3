"""Database of the ledger, SQLite or Postgres; processes may open it concurrently."""

import os
import sqlite3
import weakref
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.exc import SQLAlchemyError

from nvtrader_pipelines.storage.errors import DamagedFileError, StorageError, UnavailableError
from nvtrader_pipelines.storage.file_problems import rebuild_remedy, sqlite_problem
from nvtrader_pipelines.storage.files import IMMUTABLE, create_aside, file_lock, read_only_uri
from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.ledger.schema import EARLIER_REVISIONS, HEAD, VERSION_TABLE
from nvtrader_pipelines.storage.postgres import connect, create_schema, failure, parse_url
from nvtrader_pipelines.storage.read_sources import note_read
from nvtrader_pipelines.storage.settings import LEDGER_VARIABLE as VARIABLE
from nvtrader_pipelines.storage.settings import database_url

DATABASE_ERRORS = (SQLAlchemyError, sqlite3.Error, OSError)
SCHEMA = "ledger"  # Postgres schema; Dagster and MLflow have tables of the same names
MIGRATION_LOCK = 7_239_148_204  # advisory lock in Postgres; an arbitrary number
BUSY_TIMEOUT = 60  # seconds to wait for another writer in SQLite
# FULL: a committed version or run survives a power cut, like the table rows that name it.
PRAGMAS = ("foreign_keys = ON", "recursive_triggers = ON", "synchronous = FULL")
WRITES = "nvtrader_writes"


def ledger_url(home: Home) -> sa.URL:
    """URL of the database: $NVTRADER_LEDGER_URL, else that of the settings, else the SQLite file of the home.

    Raises:
        StorageError: if the variable is not the URL of a SQLite file or a Postgres database, or a setting is invalid.
    """
    if not (text := os.environ.get(VARIABLE)):
        return database_url(home) or sa.URL.create("sqlite", database=str(home.ledger))
    try:
        return parse_url(text, "postgresql", "sqlite")
    except ValueError as error:
        raise StorageError(f"{VARIABLE} {error}") from None


@dataclass(frozen=True)
class Database:
    """Connection pool of the ledger, closed when the object is garbage collected."""

    url: sa.URL
    _engine: sa.Engine

    @classmethod
    def open(cls, home: Home) -> "Database":
        """Open the database of a home, creating or migrating its tables if necessary.

        Raises:
            StorageError: if it cannot be reached, is damaged, or has another revision.
        """
        database = cls.connect(ledger_url(home))
        if database.file is not None and database.file.exists() and (problem := sqlite_problem(database.file)):
            raise DamagedFileError(database.file, problem, rebuild_remedy(home))
        if database.revision() != HEAD:
            database.create()
        return database

    @classmethod
    def connect(cls, url: sa.URL) -> "Database":
        """Connect to a database without migrating it.

        Raises:
            StorageError: if the driver is not installed.
        """
        if url.get_backend_name() == "sqlite":
            uri = read_only_uri(Path(str(url.database)))
            engine_url = sa.URL.create("sqlite", database=uri, query=IMMUTABLE) if uri else url
            engine = sa.create_engine(engine_url, hide_parameters=True, connect_args={"timeout": BUSY_TIMEOUT})
            event.listen(engine, "connect", _configure_sqlite)
            event.listen(engine, "begin", _begin_sqlite)
        else:
            engine = connect(url, SCHEMA)
        database = cls(url, engine)
        weakref.finalize(database, engine.dispose)
        return database

    @property
    def name(self) -> str:
        """URL of the database without its password."""
        return self.url.render_as_string(hide_password=True)

    @contextmanager
    def connection(self) -> Iterator[sa.Connection]:
        """Open a connection to read; database errors become StorageErrors."""
        if self.file is not None:
            note_read(self.file)
        with self._storage_errors(), self._engine.connect() as connection:
            yield connection

    @contextmanager
    def transaction(self) -> Iterator[sa.Connection]:
        """Open a transaction to write, committed at the end; in SQLite writers take turns."""
        with self._storage_errors(), self._engine.execution_options(**{WRITES: True}).begin() as connection:
            yield connection

    def revision(self) -> str | None:
        """Return the revision of the tables, or None if there are no tables."""
        if self.file is not None:
            note_read(self.file)
            if not self.file.exists():  # connecting would leave an empty file
                return None
        with self.connection() as connection:
            return _revision(connection)

    def create(self) -> None:
        """Create or migrate the tables; of concurrent processes, only one does the work.

        Raises:
            StorageError: if the tables have an unknown revision.
        """
        if self.file is None:
            with self.transaction() as connection:
                connection.execute(sa.select(sa.func.pg_advisory_xact_lock(MIGRATION_LOCK)))
                create_schema(connection, SCHEMA)
                self._create(connection)
            return
        with file_lock(self.file.with_name(f"{self.file.name}.lock")):
            if not self.file.exists():
                with create_aside(self.file) as new:
                    Database.connect(self.url.set(database=str(new))).create_file()
                return
            self.create_file()

    def create_file(self) -> None:
        """Create or migrate the tables of a SQLite file."""
        try:
            with self._storage_errors(), closing(self._engine.raw_connection()) as connection:
                connection.cursor().execute("PRAGMA journal_mode = WAL")  # outside a transaction; stored in the file
            with self.transaction() as connection:
                self._create(connection)
        finally:
            self._engine.dispose()  # the last connection to close writes the journal into the file

    def _create(self, connection: sa.Connection) -> None:
        revision = _revision(connection)
        if revision == HEAD:  # another process was faster
            return
        if revision not in (None, *EARLIER_REVISIONS):
            raise StorageError(
                f"the ledger {self.name} must have revision {HEAD}, but has {revision}: another version of "
                "nvtrader-pipelines built this home; install that version, or start a new home with its own database"
            )
        from alembic import command  # takes a third of a second; not needed for an up-to-date ledger
        from alembic.config import Config

        config = Config(attributes={"connection": connection})
        config.set_main_option("script_location", "nvtrader_pipelines.storage.ledger:migrations")
        command.upgrade(config, "head")

    @property
    def file(self) -> Path | None:
        """File of a SQLite database; None in Postgres."""
        return Path(str(self.url.database)) if self.url.get_backend_name() == "sqlite" else None

    @contextmanager
    def _storage_errors(self) -> Iterator[None]:
        try:
            yield
        except SQLAlchemyError as error:
            if self.file is None:
                raise failure("ledger", self.url, error) from None
            message = " ".join(str(getattr(error, "orig", None) or error).split())
            raise UnavailableError(f"the ledger {self.name} failed: {message}; check the file and its disk") from None


def _revision(connection: sa.Connection) -> str | None:
    if not sa.inspect(connection).has_table(VERSION_TABLE):
        return None
    return connection.execute(sa.text(f"SELECT version_num FROM {VERSION_TABLE}")).scalar()


def _configure_sqlite(connection: Any, _record: Any) -> None:
    connection.isolation_level = None  # the driver would otherwise commit before each CREATE TABLE
    for pragma in PRAGMAS:
        connection.execute(f"PRAGMA {pragma}")


def _begin_sqlite(connection: sa.Connection) -> None:
    writes = connection.get_execution_options().get(WRITES)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")
