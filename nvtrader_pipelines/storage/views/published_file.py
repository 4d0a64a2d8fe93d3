"""DuckDB file with the published views, opened to read without Iceberg and the ledger."""

from pathlib import Path
from threading import RLock
from typing import Any

import duckdb
import polars as pl

from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.object_store import SCHEME, client, is_object
from nvtrader_pipelines.storage.settings import tables_folder

ROOT_TABLE = "main.published"  # one row: the root of the home whose files the views read
NO_DOWNLOADS: dict[str, Any] = {"autoinstall_known_extensions": "false", "autoload_known_extensions": "false"}

IN_THIS_PROCESS = RLock()  # DuckDB keeps one instance a file and process, whose restrictions all connections share


class DamagedViewsError(StorageError):
    """Views that DuckDB cannot read; the next query publishes them again."""


def open_published(home: Home) -> duckdb.DuckDBPyConnection:
    """Open the published views of a home to read.

    Raises:
        StorageError: if another program has the file open for writing, or it is damaged.
    """
    path = home.duckdb_file
    try:
        connection = duckdb.connect(str(path), read_only=True, config=NO_DOWNLOADS)
    except duckdb.Error as error:
        if not isinstance(error, duckdb.IOException) or "lock" not in str(error):
            raise DamagedViewsError(
                f'the views cannot be opened ({one_line(error)}); `nvtrader sql "SELECT 1"` publishes them again'
            ) from error
        raise StorageError(
            f"{path} is open for writing in another program ({one_line(error)}); close it there and open the views "
            f"read-only: duckdb -readonly {path.name}, or duckdb.connect({path.name!r}, read_only=True) in Python"
        ) from error
    read_objects(connection, home)
    return connection


def read_objects(connection: duckdb.DuckDBPyConnection, home: Home) -> None:
    """Let a connection read the tables of a home in an object store, which DuckDB itself can with httpfs only."""
    name = SCHEME.removesuffix("://")
    if is_object(tables_folder(home)) and name not in connection.list_filesystems():
        from fsspec.implementations.arrow import ArrowFSWrapper  # takes half a second

        class Objects(ArrowFSWrapper):
            @classmethod  # called with every path; the store's client would follow the dots
            def _strip_protocol(cls, path: str) -> str:
                if {".", ".."}.intersection(path.split("/")):
                    raise PermissionError(f"{path} must be without . and ..; write the whole path")
                return ArrowFSWrapper._strip_protocol(path)  # noqa: SLF001

            protocol = name  # pyright: ignore[reportAssignmentType, reportIncompatibleMethodOverride]
            cachable = False

        connection.register_filesystem(Objects(client()))


def published_root(connection: duckdb.DuckDBPyConnection) -> Path | None:
    """Root of the home whose files the views read; None if it is not recorded or damaged."""
    try:
        ((root,),) = connection.execute(f"SELECT root FROM {ROOT_TABLE}").fetchall()
    except (duckdb.Error, ValueError):
        return None
    return Path(root)


def read_query(connection: duckdb.DuckDBPyConnection, query: str, max_rows: int | None = None) -> pl.DataFrame:
    """Run a query and return its rows, or the first ones; a statement without a result returns an empty frame."""
    relation = connection.sql(query)
    if relation is None:
        return pl.DataFrame()
    return (relation if max_rows is None else relation.limit(max_rows)).pl()


def one_line(error: duckdb.Error) -> str:
    """Message of an error in one line, without the arrow below the query."""
    return " ".join(str(error).partition("\n\nLINE")[0].split())
