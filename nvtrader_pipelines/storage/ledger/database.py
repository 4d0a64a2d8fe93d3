"""The database behind the ledger: a SQLite file, or Postgres by URL; opened, and brought up to date, safely by many."""

import os
import weakref
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.exc import ArgumentError, NoSuchModuleError, SQLAlchemyError

from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.files import locked
from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.ledger.schema import HEAD, VERSION_TABLE

VARIABLE = "NVTRADER_LEDGER_URL"
SCHEMA = "ledger"  # of Postgres, where Dagster and MLflow have tables of the same names
LOCK = 7_239_148_204  # of Postgres, for migrations: any number that nobody else takes
WAIT = 60  # seconds for another writer of SQLite
DRIVERS = {"postgres": "postgresql+psycopg", "postgresql": "postgresql+psycopg"}
# FULL: a version or a finished run that was told of is there after a power failure, like the rows that name it.
PRAGMAS = ("foreign_keys = ON", "recursive_triggers = ON", "synchronous = FULL")
WRITES = "nvtrader_writes"


def ledger_url(home: Home) -> sa.URL:
    """$NVTRADER_LEDGER_URL, else the SQLite file of the home.

    Raises:
        StorageError: if the variable holds no URL of a SQLite file or a Postgres database.
    """
    named = os.environ.get(VARIABLE)
    if not named:
        return sa.URL.create("sqlite", database=str(home.ledger))
    wanted = f"{VARIABLE} must be postgresql://user:password@host/database or sqlite:////path/to/file"
    try:
        url = sa.make_url(named)
    except (ArgumentError, ValueError):  # ValueError: the port is no number
        raise StorageError(f"{wanted}, but it is no URL") from None  # the cause may hold the password
    url = url.set(drivername=DRIVERS.get(url.drivername, url.drivername))
    if url.get_backend_name() not in {"sqlite", "postgresql"}:
        raise StorageError(f"{wanted}, but it names {url.get_backend_name()}")
    if url.get_backend_name() == "sqlite" and url.database in {None, "", ":memory:"}:
        raise StorageError(f"{wanted}, but it names no file")
    return url


@dataclass(frozen=True)
class Database:
    """Connections to the ledger, closed when nobody holds it any more."""

    url: sa.URL
    _engine: sa.Engine

    @classmethod
    def open(cls, home: Home) -> "Database":
        """Open the database of a home, and create its tables where there are none.

        Raises:
            StorageError: if it cannot be reached, or has another revision.
        """
        database = cls.connect(ledger_url(home))
        if database.revision() != HEAD:
            database.create()
        return database

    @classmethod
    def connect(cls, url: sa.URL) -> "Database":
        """The database as it is.

        Raises:
            StorageError: if its driver is not installed.
        """
        is_sqlite = url.get_backend_name() == "sqlite"
        arguments: dict[str, Any] = {"timeout": WAIT} if is_sqlite else {"options": f"-csearch_path={SCHEMA}"}
        try:
            engine = sa.create_engine(url, hide_parameters=True, connect_args=arguments, pool_pre_ping=not is_sqlite)
        except (ModuleNotFoundError, NoSuchModuleError):
            raise StorageError(
                f"the driver of {url.drivername} is not installed; pip install -c constraints.txt -e '.[postgres]'"
            ) from None
        if is_sqlite:
            event.listen(engine, "connect", _prepare)
            event.listen(engine, "begin", _begin)
        database = cls(url, engine)
        weakref.finalize(database, engine.dispose)
        return database

    @property
    def name(self) -> str:
        """Where it is, without its password."""
        return self.url.render_as_string(hide_password=True)

    @contextmanager
    def reading(self) -> Iterator[sa.Connection]:
        """A connection; what fails is a StorageError."""
        with self._told(), self._engine.connect() as connection:
            yield connection

    @contextmanager
    def writing(self) -> Iterator[sa.Connection]:
        """A transaction, committed at the end; of SQLite, it waits for its turn before it reads."""
        with self._told(), self._engine.execution_options(**{WRITES: True}).begin() as connection:
            yield connection

    def revision(self) -> str | None:
        """Which revision its tables have; None where there are none."""
        if self._file is not None:
            self._file.parent.mkdir(parents=True, exist_ok=True)
        with self.reading() as connection:
            return _revision(connection)

    def create(self) -> None:
        """Create the tables; of many processes at once, one does.

        Raises:
            StorageError: if the tables have another revision.
        """
        if self._file is None:
            with self.writing() as connection:
                connection.execute(sa.select(sa.func.pg_advisory_xact_lock(LOCK)))
                if SCHEMA not in sa.inspect(connection).get_schema_names():
                    connection.execute(sa.schema.CreateSchema(SCHEMA))
                self._create(connection)
            return
        with locked(self._file.with_name(f"{self._file.name}.lock")):
            with self._told(), closing(self._engine.raw_connection()) as connection:
                connection.cursor().execute("PRAGMA journal_mode = WAL")  # outside a transaction; the file remembers it
            with self.writing() as connection:
                self._create(connection)

    def _create(self, connection: sa.Connection) -> None:
        found = _revision(connection)
        if found == HEAD:  # another process was first
            return
        if found is not None:
            raise StorageError(
                f"the ledger {self.name} must have revision {HEAD}, but has {found}: another version of "
                "nvtrader-pipelines built this home; move the home away and start a new one, or install that version"
            )
        from alembic import command  # a third of a second, which an up-to-date ledger does not need
        from alembic.config import Config

        config = Config(attributes={"connection": connection})
        config.set_main_option("script_location", "nvtrader_pipelines.storage.ledger:migrations")
        command.upgrade(config, "head")

    @property
    def _file(self) -> Path | None:
        return Path(str(self.url.database)) if self.url.get_backend_name() == "sqlite" else None

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except SQLAlchemyError as error:
            said = " ".join(str(getattr(error, "orig", None) or error).split())
            if self.url.password:
                said = said.replace(str(self.url.password), "***")
            hint = f"check {VARIABLE} and the server" if self._file is None else "check the file and its disk"
            # the cause is left out, because a driver may quote the password in its own words
            raise StorageError(f"the ledger {self.name} failed: {said}; {hint}") from None


def _revision(connection: sa.Connection) -> str | None:
    if not sa.inspect(connection).has_table(VERSION_TABLE):
        return None
    return connection.execute(sa.text(f"SELECT version_num FROM {VERSION_TABLE}")).scalar()


def _prepare(connection: Any, _record: Any) -> None:
    connection.isolation_level = None  # the driver's own transactions would end before a table is made
    for pragma in PRAGMAS:
        connection.execute(f"PRAGMA {pragma}")


def _begin(connection: sa.Connection) -> None:
    writes = connection.get_execution_options().get(WRITES)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")
