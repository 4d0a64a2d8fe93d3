"""Publication of the views in a DuckDB file."""

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path

import duckdb

from nvtrader_pipelines.storage.files import file_lock, write_atomically
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.views.published_file import IN_THIS_PROCESS, NO_DOWNLOADS, ROOT_TABLE, read_objects
from nvtrader_pipelines.storage.views.view_definitions import create_views, quote_literal

STORAGE_VERSION = "v1.0.0"  # older clients can open the file too


def publish(store: Store) -> Path:
    """Build the DuckDB file aside and rename it over the old one, so readers never wait.

    Views whose files did not change are taken over from the old one, unless somebody wrote to it.
    """
    path = store.home.duckdb_file
    temporary, record = path.with_name(f".{path.name}.{os.getpid()}.tmp"), path.with_name(f".{path.name}.views.json")
    with IN_THIS_PROCESS, file_lock(path.with_suffix(".lock")):
        for left in path.parent.glob(f".{path.name}.*.tmp*"):  # by a killed publisher
            left.unlink()
        before = _published_views(path, record)
        try:
            views = _build(store, temporary, before)
        except duckdb.Error:
            if not before:
                raise
            temporary.unlink(missing_ok=True)  # the old file is damaged
            views = _build(store, temporary, {})
        stale = path.with_name(f"{path.name}.wal")
        stale.unlink(missing_ok=True)  # left by a client that wrote to the old file; it would block every open
        stamp = _stamp(temporary)  # which a client that writes to the new file changes
        temporary.replace(path)
        stale.unlink(missing_ok=True)
        write_atomically(record, json.dumps({"file": stamp, "views": views}).encode())
    return path


def _build(store: Store, path: Path, before: Mapping[str, str]) -> dict[str, str]:
    """Write the views to a file, from a copy of the published one if that has the views `before`."""
    if before:
        shutil.copyfile(store.home.duckdb_file, path)
    with duckdb.connect(config=NO_DOWNLOADS) as connection:
        connection.execute(
            f"ATTACH {quote_literal(str(path))} AS nvtrader (STORAGE_VERSION {quote_literal(STORAGE_VERSION)})"
        )
        read_objects(connection, store.home)
        connection.begin()  # one write of the file, not one per statement
        views = create_views(connection, store, "nvtrader", before)
        root = quote_literal(str(store.home.root.absolute()))
        connection.execute(f"CREATE OR REPLACE TABLE nvtrader.{ROOT_TABLE} AS SELECT {root} AS root")
        connection.commit()
        connection.execute("CHECKPOINT nvtrader")
        connection.execute("DETACH nvtrader")
    return views


def _published_views(path: Path, record: Path) -> dict[str, str]:
    """Views of the published file as `create_views` returned them; none if the file was written since."""
    try:
        content = json.loads(record.read_bytes())
        return content["views"] if content["file"] == _stamp(path) else {}
    except (OSError, ValueError, LookupError, TypeError):
        return {}


def _stamp(path: Path) -> list[int]:
    """Size, time and inode of a file, which differ once it is written."""
    stat = path.stat()
    return [stat.st_size, stat.st_mtime_ns, stat.st_ino]
