"""Keeping the warehouse small: small files merge, superseded snapshots expire, files that none needs go."""

import contextlib
import stat
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from pyiceberg.table import Table as IcebergTable

from nvtrader_pipelines.storage.files import locked
from nvtrader_pipelines.storage.home import lock_path
from nvtrader_pipelines.storage.iceberg.compaction import compact
from nvtrader_pipelines.storage.iceberg.snapshots import expire
from nvtrader_pipelines.storage.iceberg.warehouse import Warehouse
from nvtrader_pipelines.storage.table import Table
from nvtrader_pipelines.storage.tables import TABLES

GRACE = timedelta(days=1)  # an unreferenced file may belong to a commit under way or to views just opened


@dataclass(frozen=True)
class Tidied:
    """What went, and what became of it."""

    n_merged: int = 0  # small files
    n_made: int = 0  # files they became
    n_snapshots: int = 0
    n_files: int = 0
    n_bytes: int = 0

    def __str__(self) -> str:
        return (
            f"{self.n_merged} small files merged into {self.n_made}, {self.n_snapshots} snapshots expired, "
            f"{self.n_files} files deleted ({self.n_bytes} bytes)"
        )

    def __add__(self, other: "Tidied") -> "Tidied":
        """Both together."""
        return Tidied(
            self.n_merged + other.n_merged,
            self.n_made + other.n_made,
            self.n_snapshots + other.n_snapshots,
            self.n_files + other.n_files,
            self.n_bytes + other.n_bytes,
        )


def tidy(
    tables: Warehouse,
    now: datetime,
    keep: timedelta = timedelta(days=7),
    tell: Callable[[str, Tidied], None] = lambda _table, _tidied: None,
) -> Tidied:
    """Merge small files, expire snapshots superseded before `now - keep`, delete files not needed for over a day.

    Snapshots that `gold.market_panel`, `rl.runs` or the ledger name are kept for ever: what they record can be read
    again, and an interrupted run goes on. Writers go on meanwhile; killed at any moment, what is left is done the next
    time.

    Args:
        tables: the tables.
        now: the time, in UTC.
        keep: how long a snapshot that nothing names stays after it was superseded.
        tell: called with the name of each table that was touched, and with what went there.
    """
    pinned, total = tables.pinned_snapshots(), Tidied()
    for table in TABLES:
        if tables.find(table) is None:
            continue
        part = _tidy(tables, table, pinned, now, keep)
        if part != Tidied():
            tell(table.name, part)
        total += part
    return total


def _tidy(tables: Warehouse, table: Table, pinned: set[int], now: datetime, keep: timedelta) -> Tidied:
    merges = compact(tables, table)
    with locked(lock_path(tables.home, table.name)):
        n_snapshots = expire(tables.load(table), pinned, now - keep)
        sizes = _sweep(tables.load(table), now - GRACE)
    return Tidied(
        n_merged=sum(len(merge.sources) for merge in merges),
        n_made=sum(len(merge.paths) for merge in merges),
        n_snapshots=n_snapshots,
        n_files=len(sizes),
        n_bytes=sum(sizes),
    )


def _sweep(iceberg: IcebergTable, before: datetime) -> list[int]:
    """Delete the table's files that no snapshot reaches and that were last needed before a time; their sizes."""
    folder = Path(iceberg.location().removeprefix("file://"))
    needed = _reachable(iceberg)
    sizes = []
    for path in folder.rglob("*"):
        with contextlib.suppress(FileNotFoundError):  # a writer that failed has deleted its own
            fact = path.stat()
            old = datetime.fromtimestamp(fact.st_mtime, UTC) < before
            if old and str(path) not in needed and stat.S_ISREG(fact.st_mode):
                path.unlink()
                sizes.append(fact.st_size)
    return sizes


def _reachable(iceberg: IcebergTable) -> set[str]:
    """Every file that the metadata, its log or a snapshot refers to."""
    found = {iceberg.metadata_location, *(entry.metadata_file for entry in iceberg.metadata.metadata_log)}
    manifests = {}
    for snapshot in iceberg.snapshots():
        found.add(snapshot.manifest_list)
        manifests |= {manifest.manifest_path: manifest for manifest in snapshot.manifests(iceberg.io)}
    for path, manifest in manifests.items():
        entries = manifest.fetch_manifest_entry(iceberg.io, discard_deleted=True)
        found |= {path, *(entry.data_file.file_path for entry in entries)}
    return {path.removeprefix("file://") for path in found}
