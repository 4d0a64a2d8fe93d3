"""Queries over the published views, which are published again where the home has moved."""

from pathlib import Path

import duckdb
import polars as pl

from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.views.published_file import one_line, open_published, published_root, read_query


def query_views(store: Store, query: str) -> pl.DataFrame:
    """Run a query over the published views and return its rows.

    Raises:
        StorageError: if there are no tables yet, the query is invalid, or files are missing.
    """
    home = store.home
    if not home.catalog.exists():
        raise StorageError(f"there are no tables yet: {home.catalog} is missing; run `nvtrader materialize` first")
    try:
        with _open_current(store) as connection:
            return read_query(connection, query)
    except duckdb.Error as error:
        if "No files found" in str(error) and str(home.iceberg) in str(error):
            raise StorageError(
                f"a table lacks a file ({one_line(error)}); restore the home from a backup: `nvtrader restore`"
            ) from error
        raise StorageError(f"the query failed: {one_line(error)}") from error


def _open_current(store: Store) -> duckdb.DuckDBPyConnection:
    """Open the views; publish them first if the home was moved or copied since."""
    root = None
    if store.home.duckdb_file.exists():
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
    except OSError as error:
        raise StorageError(
            f"the views of this home must be published again, since they read {root or 'an earlier folder'}, but "
            f"{store.home.warehouse} cannot be written ({error.strerror}); make it writable, or copy the home"
        ) from error
