"""Queries over the published views, which are published again where the home has moved."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Timer

import duckdb
import polars as pl

from nvtrader_pipelines.components.explanation import suggest
from nvtrader_pipelines.storage.errors import NotFoundError, StorageError
from nvtrader_pipelines.storage.file_problems import has_catalog, rebuild_remedy
from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.settings import read_settings, tables_folder
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.views.published_file import (
    IN_THIS_PROCESS,
    DamagedViewsError,
    one_line,
    open_published,
    published_root,
    read_query,
)
from nvtrader_pipelines.storage.views.restricted_query import run_restricted

MAX_SECONDS = 30.0  # of a query of which the first rows are asked for, by a tool
COLUMNS = """
SELECT if(schema_name = 'main', '', schema_name || '.') || table_name AS name,
       column_name AS column, data_type AS type, coalesce(comment, '') AS meaning
FROM duckdb_columns() WHERE NOT internal
"""


def query_views(store: Store, query: str, *, allow_files: bool = False, max_rows: int | None = None) -> pl.DataFrame:
    """Run a query over the published views and return its rows.

    Args:
        store: store of the home.
        query: SQL statements, which read files of the home; COPY writes below `exports/` or the working folder.
        allow_files: allow all files and statements, and extensions.
        max_rows: number of rows at most, of a query that writes nothing; None: all rows.

    Raises:
        StorageError: if there are no tables yet, the query is invalid or refused, or files are missing.
    """
    home = store.home
    if not has_catalog(home):
        missing = tables_folder(home) if read_settings(home).database_url else home.catalog
        raise StorageError(f"there are no tables yet: {missing} is missing; run `nvtrader materialize` first")
    with query_errors(home), IN_THIS_PROCESS, _open_current(store) as connection:
        if allow_files:
            return read_query(connection, query)
        if max_rows is None:
            return run_restricted(connection, home, query)
        with _time_limit(connection):
            return run_restricted(connection, home, query, max_rows)


def read_columns(store: Store, name: str) -> pl.DataFrame:
    """Read the columns of a table or a view, with their types in DuckDB and their meanings.

    Raises:
        NotFoundError: if there is no such table or view.
    """
    columns = query_views(store, COLUMNS)
    rows = columns.filter(name=name).drop("name")
    if rows.is_empty():
        near = suggest(name, columns["name"].unique().to_list())
        raise NotFoundError(f"there is no table or view {name!r}{near}; `nvtrader tables` lists them")
    return rows


@contextmanager
def _time_limit(connection: duckdb.DuckDBPyConnection) -> Iterator[None]:
    """Interrupt a query after some seconds, since others wait for it.

    Raises:
        StorageError: if it is interrupted.
    """
    timer = Timer(MAX_SECONDS, connection.interrupt)
    timer.start()
    try:
        yield
    except duckdb.InterruptException as error:
        raise StorageError(
            f"a query must end within {MAX_SECONDS:g} seconds, but this one did not; ask for less, or run it with "
            "`nvtrader sql`"
        ) from error
    finally:
        timer.cancel()


@contextmanager
def query_errors(home: Home) -> Iterator[None]:
    """Turn errors of DuckDB into a sentence with the remedy.

    Raises:
        StorageError: if the query is invalid or refused, or files are missing or damaged.
    """
    try:
        yield
    except pl.exceptions.PolarsError as error:
        raise StorageError(
            f"the rows have a type that is not supported ({error}); cast it, as in CAST(x AS text)"
        ) from error
    except duckdb.Error as error:
        if "No files found" in str(error) and tables_folder(home) in str(error):
            raise StorageError(
                f"a table lacks a file ({one_line(error)}); restore the home from a backup: `nvtrader restore`"
            ) from error
        hint = ""
        if isinstance(error, duckdb.PermissionException):
            hint = "; a query reads only files of the home, unless `nvtrader sql --allow-files`"
        elif "read-only mode" in str(error):
            hint = "; select the rows, or write them to a file: COPY (query) TO 'file'"
        elif tables_folder(home) in str(error):
            hint = f"; a file of a table is damaged, see `nvtrader doctor`: {rebuild_remedy(home)}"
        raise StorageError(f"the query failed: {one_line(error)}{hint}") from error


def _open_current(store: Store) -> duckdb.DuckDBPyConnection:
    """Open the views; publish them first if the home was moved or copied since."""
    root = None
    if store.home.duckdb_file.exists():
        with suppress(DamagedViewsError):
            connection = open_published(store.home)
            root = published_root(connection)
            if root == store.home.root.absolute():
                return connection
            connection.close()
    _publish_again(store, root)
    return open_published(store.home)


def _publish_again(store: Store, root: Path | None) -> None:
    from nvtrader_pipelines.storage.views.publishing import publish  # imports Iceberg and SQLAlchemy: half a second

    try:
        publish(store)
    except (OSError, duckdb.IOException) as error:
        reason = error.strerror if isinstance(error, OSError) else one_line(error)
        raise StorageError(
            f"the views of this home must be published again, since they read {root or 'an earlier folder'}, but "
            f"{store.home.warehouse} cannot be written ({reason}); make it writable, or copy the home"
        ) from error
