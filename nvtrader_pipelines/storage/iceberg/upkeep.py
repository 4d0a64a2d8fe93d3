"""Upkeep: merge small files, expire superseded snapshots, delete orphaned files."""

import contextlib
import operator
import stat
from collections.abc import Callable
from dataclasses import astuple, dataclass
from datetime import datetime, timedelta
from itertools import groupby
from pathlib import Path

from pyiceberg.manifest import DataFile
from pyiceberg.table import Table as IcebergTable

from nvtrader_pipelines.storage.iceberg.commits import Merge, plan_files, read_batches
from nvtrader_pipelines.storage.iceberg.data_files import DataFiles
from nvtrader_pipelines.storage.iceberg.fsync_io import delete_file
from nvtrader_pipelines.storage.iceberg.locations import local_path
from nvtrader_pipelines.storage.iceberg.snapshots import expire_snapshots, reachable_paths
from nvtrader_pipelines.storage.iceberg.warehouse import Warehouse
from nvtrader_pipelines.storage.locks import home_lock
from nvtrader_pipelines.storage.object_store import is_object, list_objects
from nvtrader_pipelines.storage.table import Table
from nvtrader_pipelines.storage.tables import TABLES

SMALL_BYTES = 64 << 20  # of a file; smaller ones are merged, because a scan opens files one by one
KEPT = timedelta(days=7)  # time that a superseded snapshot stays if it is not pinned
UPKEEP_LOCK = "upkeep"  # a backup holds it, too, so that no file disappears before it is copied
GRACE = timedelta(days=1)  # an unreferenced file may belong to a commit under way or to views just opened


@dataclass(frozen=True)
class UpkeepReport:
    """Counts of merged, expired and deleted items."""

    n_merged: int = 0  # small files merged
    n_written: int = 0  # files they were merged into
    n_snapshots: int = 0  # expired
    n_files: int = 0  # deleted
    n_bytes: int = 0  # of the deleted files

    def __str__(self) -> str:
        return (
            f"{self.n_merged} small files merged into {self.n_written}, {self.n_snapshots} snapshots expired, "
            f"{self.n_files} files deleted ({self.n_bytes} bytes)"
        )

    def __add__(self, other: "UpkeepReport") -> "UpkeepReport":
        """Sum of two reports."""
        return UpkeepReport(*map(operator.add, astuple(self), astuple(other)))


def tidy(
    tables: Warehouse, now: datetime, on_table: Callable[[str, UpkeepReport], None] = lambda _table, _report: None
) -> UpkeepReport:
    """Merge small files, expire snapshots superseded a week ago, delete orphans.

    Snapshots named by `gold.market_panel`, `portfolio.rebalance_plan`, `rl.runs` or the ledger never expire, so that
    recorded results stay reproducible and interrupted runs can resume. Files are deleted a day after they were last
    needed. Writers may run meanwhile. If upkeep is killed, the next one completes it. `on_table` is called with the
    name and the report of each table that changed.
    """
    pinned, total = tables.pinned_snapshots(), UpkeepReport()
    with home_lock(tables.home, UPKEEP_LOCK):
        for table in TABLES:
            if tables.find(table) is None:
                continue
            part = _tidy_table(tables, table, pinned, now)
            if part != UpkeepReport():
                on_table(table.name, part)
            total += part
    return total


def _tidy_table(tables: Warehouse, table: Table, pinned: set[int], now: datetime) -> UpkeepReport:
    merges = compact(tables, table)
    with home_lock(tables.home, table.name):
        n_snapshots = expire_snapshots(tables.load(table), pinned, now - KEPT)
        sizes = _sweep(tables.load(table), now - GRACE)
    return UpkeepReport(
        n_merged=sum(len(merge.sources) for merge in merges),
        n_written=sum(len(merge.paths) for merge in merges),
        n_snapshots=n_snapshots,
        n_files=len(sizes),
        n_bytes=sum(sizes),
    )


def _sweep(iceberg: IcebergTable, before: datetime) -> list[int]:
    """Delete orphaned files last needed before a time, and return their sizes."""
    folder = local_path(iceberg, iceberg.location())
    needed = reachable_paths(iceberg)
    sizes = []
    for path, (size, written_at) in _list_files(folder).items():
        if written_at < before.timestamp() and path not in needed:
            delete_file(path)
            sizes.append(size)
    return sizes


def _list_files(folder: str) -> dict[str, tuple[int, float]]:
    """Size and time of writing of all files below a folder, by path."""
    if is_object(folder):
        return {path: (info.size, info.mtime_ns / 1e9) for path, info in list_objects(folder).items()}
    files = {}
    for path in Path(folder).rglob("*"):
        with contextlib.suppress(FileNotFoundError):  # a failed writer deleted its own file
            status = path.stat()
            if stat.S_ISREG(status.st_mode):
                files[str(path)] = status.st_size, status.st_mtime
    return files


def compact(tables: Warehouse, table: Table) -> list[Merge]:
    """Merge the small files of each partition in one commit; return the committed merges.

    Writers may run meanwhile: only the commit takes the table's lock, and it drops merges of partitions that were
    replaced in between. If the process is killed, upkeep later deletes the orphaned files.
    """
    iceberg = tables.find(table)
    if iceberg is None:
        return []
    merges = [_merge_files(table, iceberg, sources) for sources in _small_file_groups(table, iceberg)]
    return tables.merge(table, merges) if merges else []


def _small_file_groups(table: Table, iceberg: IcebergTable) -> list[list[DataFile]]:
    """Groups of two or more small files of the same partition, in reading order."""
    files = [task.file for task in plan_files(table, iceberg) if task.file.file_size_in_bytes < SMALL_BYTES]
    groups = [list(group) for _, group in groupby(files, key=lambda file: [str(value) for value in file.partition])]
    return [group for group in groups if len(group) > 1]


def _merge_files(table: Table, iceberg: IcebergTable, sources: list[DataFile]) -> Merge:
    with DataFiles(iceberg) as merged:
        for batch in read_batches(table, (local_path(iceberg, file.file_path) for file in sources)):
            merged.write(batch)
    return Merge(sources, merged.paths)
