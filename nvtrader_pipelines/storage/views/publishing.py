"""Publication of the views in a DuckDB file."""

import os
from pathlib import Path

import duckdb

from nvtrader_pipelines.storage.files import file_lock
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.views.published_file import IN_THIS_PROCESS, NO_DOWNLOADS, ROOT_TABLE
from nvtrader_pipelines.storage.views.view_definitions import create_views, quote_literal

STORAGE_VERSION = "v1.0.0"  # older clients can open the file too


def publish(store: Store) -> Path:
    """Build the DuckDB file aside and rename it over the old one, so readers never wait."""
    path, root = store.home.duckdb_file, str(store.home.root.absolute())
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with IN_THIS_PROCESS, file_lock(path.with_suffix(".lock")):
        for left in path.parent.glob(f".{path.name}.*.tmp*"):  # by a killed publisher
            left.unlink()
        with duckdb.connect(config=NO_DOWNLOADS) as connection:
            connection.execute(
                f"ATTACH {quote_literal(str(temporary))} AS nvtrader (STORAGE_VERSION {quote_literal(STORAGE_VERSION)})"
            )
            connection.begin()  # one write of the file, not one per statement
            create_views(connection, store, "nvtrader")
            connection.execute(f"CREATE TABLE nvtrader.{ROOT_TABLE} AS SELECT {quote_literal(root)} AS root")
            connection.commit()
            connection.execute("CHECKPOINT nvtrader")
            connection.execute("DETACH nvtrader")
        stale = path.with_name(f"{path.name}.wal")
        stale.unlink(missing_ok=True)  # left by a client that wrote to the old file; it would block every open
        temporary.replace(path)
        stale.unlink(missing_ok=True)
    return path
