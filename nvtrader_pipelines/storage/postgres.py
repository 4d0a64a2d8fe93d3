"""URLs of databases, connections to Postgres, and sentences on their failures; none shows a password."""

import atexit
import functools
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import ArgumentError, NoSuchModuleError, SQLAlchemyError

from nvtrader_pipelines.storage.errors import StorageError, UnavailableError

FORMS = {"postgresql": "postgresql://user:password@host/database", "sqlite": "sqlite:////path/to/file"}
DRIVERS = {"postgres": "postgresql+psycopg", "postgresql": "postgresql+psycopg"}
TABLES_LOCK = 7_239_148_206  # advisory lock of those who create tables; an arbitrary number
URL = sa.URL  # for callers, which do not import SQLAlchemy
PATIENCE = {  # options of libpq: how long a server may be silent, in seconds and, of the last, milliseconds
    "connect_timeout": "10",
    "keepalives_idle": "30",
    "keepalives_interval": "10",
    "keepalives_count": "3",
    "tcp_user_timeout": "60000",
}
ADDRESS = "start the server, or correct host and port in the URL"
LOGIN = "correct user and password of the URL, PGPASSWORD or ~/.pgpass"
REMEDIES = {  # by words of the server's or the driver's message
    "failed to resolve host": ADDRESS,
    "Connection refused": ADDRESS,
    "No such file or directory": ADDRESS,  # of a socket
    "timeout expired": ADDRESS,
    "password authentication failed": LOGIN,
    "no password supplied": LOGIN,
    'FATAL: role "': LOGIN,
    'FATAL: database "': "create the database with createdb, or correct its name in the URL",
    "permission denied": "let the user create schemas and tables in the database",
}


def parse_url(text: object, *backends: str) -> sa.URL:
    """Parse the URL of a database; a password among its options becomes the password.

    Raises:
        ValueError: if it is not the URL of a database of these kinds.
    """
    requirement = f"must be {' or '.join(FORMS[backend] for backend in backends)}"
    try:
        url = sa.make_url(str(text))
    except (ArgumentError, ValueError):  # ValueError: the port is not a number
        raise ValueError(f"{requirement}, but it is not a URL") from None  # the cause may hold the password
    url = url.set(drivername=DRIVERS.get(url.drivername, url.drivername))
    if url.get_backend_name() not in backends:
        raise ValueError(f"{requirement}, but it names {url.get_backend_name()}")
    if url.get_backend_name() == "sqlite" and url.database in {None, "", ":memory:"}:
        raise ValueError(f"{requirement}, but it names no file")
    if str(text).partition("?")[0].count("@") > 1:
        raise ValueError(f"{requirement}, with @, / and % of a user and password as %40, %2F and %25, but is not")
    if others := [name for name in url.query if "password" in name and name != "password"]:
        raise ValueError(f"{requirement}, but it has {', '.join(others)}; set a variable or file of libpq instead")
    if password := url.query.get("password"):
        url = url.set(password=str(password)).difference_update_query(["password"])
    return url


def in_schema(url: sa.URL, schema: str) -> sa.URL:
    """URL of connections whose tables are in a schema."""
    return url.set(query={**PATIENCE, **url.query, "options": f"-csearch_path={schema}"})


def connect(url: sa.URL, schema: str, **options: Any) -> sa.Engine:
    """Make a pool of connections to Postgres; the first use connects.

    Raises:
        StorageError: if the driver is not installed.
    """
    try:
        return sa.create_engine(in_schema(url, schema), hide_parameters=True, pool_pre_ping=True, **options)
    except (ModuleNotFoundError, NoSuchModuleError):
        raise StorageError(
            f"the driver of {url.drivername} is not installed; run pip install 'nvtrader-pipelines[postgres]'"
        ) from None


def pool(url: sa.URL) -> sa.Engine:
    """Return the pool of this process for locks, books and switches, made once."""
    return _pool(url, os.getpid())


@functools.cache
def _pool(url: sa.URL, process: int) -> sa.Engine:
    engine = connect(url, "public", pool_size=2, max_overflow=-1)  # a lock holds a connection, however many there are
    atexit.register(lambda: engine.dispose(close=os.getpid() == process))  # a fork must not end its parent's sessions
    return engine


def create_schema(connection: sa.Connection, schema: str) -> None:
    """Create a schema if it is missing; the caller holds an advisory lock."""
    if schema not in sa.inspect(connection).get_schema_names():
        connection.execute(sa.schema.CreateSchema(schema))


@contextmanager
def in_transaction(part: str, url: sa.URL, schema: str, created: sa.MetaData | None = None) -> Iterator[sa.Connection]:
    """Begin a transaction with the tables of a schema, after those that are `created` if they are missing.

    Raises:
        UnavailableError: if the database fails; the sentence names the part.
    """
    try:
        with pool(url).begin() as connection:
            name = connection.dialect.identifier_preparer.quote_identifier(schema)
            connection.execute(sa.select(sa.func.set_config("search_path", name, True)))  # noqa: FBT003 - local
            if created is not None:
                connection.execute(sa.select(sa.func.pg_advisory_xact_lock(TABLES_LOCK)))
                create_schema(connection, schema)
                created.create_all(connection)
            yield connection
    except SQLAlchemyError as error:
        raise failure(part, url, error) from None


def prepare_schema(part: str, url: sa.URL, schema: str, create: Callable[[str], object]) -> str:
    """Create a schema of another library, and its tables by a function of its URL; one process at a time.

    Returns:
        The URL of its tables, with the password.

    Raises:
        StorageError: if the driver is not installed.
        UnavailableError: if the database cannot be used.
    """
    text = in_schema(url, schema).render_as_string(hide_password=False)
    url = url.set(drivername=DRIVERS["postgresql"])
    with in_transaction(part, url, schema, sa.MetaData()):
        pass
    with in_transaction(part, url, schema) as connection:
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(TABLES_LOCK)))
        if not sa.inspect(connection).get_table_names(schema):
            create(text)  # over connections of its own, which see the schema now
    return text


def failure(part: str, url: sa.URL, error: BaseException) -> UnavailableError:
    """Sentence on a failed use of a database; raise it without the cause, which may quote the password."""
    message = " ".join(str(getattr(error, "orig", None) or error).split())
    if url.password:
        message = message.replace(str(url.password), "***")
    remedy = next((remedy for words, remedy in REMEDIES.items() if words in message), "check the URL and the server")
    return UnavailableError(f"the {part} {url.render_as_string(hide_password=True)} failed: {message}; {remedy}")


def find_problem(part: str, url: sa.URL, schema: str) -> str:
    """Connect to a database of Postgres; return the problem with its remedy, or an empty text."""
    try:
        engine = connect(url, schema)
        try:
            engine.connect().close()
        finally:
            engine.dispose()
    except SQLAlchemyError as error:
        return str(failure(part, url, error))
    except StorageError as error:
        return str(error)
    return ""
