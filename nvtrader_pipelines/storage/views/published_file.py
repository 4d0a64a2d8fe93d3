"""DuckDB file with the published views, opened to read without Iceberg and the ledger."""

from pathlib import Path
from threading import RLock
from typing import Any

import duckdb
import polars as pl

from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.home import Home

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
        return duckdb.connect(str(path), read_only=True, config=NO_DOWNLOADS)
    except duckdb.Error as error:
        if not isinstance(error, duckdb.IOException) or "lock" not in str(error):
            raise DamagedViewsError(
                f'the views cannot be opened ({one_line(error)}); `nvtrader sql "SELECT 1"` publishes them again'
            ) from error
        raise StorageError(
            f"{path} is open for writing in another program ({one_line(error)}); close it there and open the views "
            f"read-only: duckdb -readonly {path.name}, or duckdb.connect({path.name!r}, read_only=True) in Python"
        ) from error


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
