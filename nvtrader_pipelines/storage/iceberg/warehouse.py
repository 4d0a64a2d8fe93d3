"""Iceberg tables of a home: rows are replaced by key in one commit and read at any snapshot."""

import contextlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from itertools import chain
from typing import Self

import polars as pl
import sqlalchemy as sa
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table as IcebergTable
from pyiceberg.table.snapshots import Snapshot

from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.iceberg.catalog import find_table, load_table, open_catalog, table_errors
from nvtrader_pipelines.storage.iceberg.commits import (
    Merge,
    Where,
    find_files,
    key_filter,
    live_paths,
    plan_files,
    retry_on_conflict,
    scan_files,
    swap_files,
)
from nvtrader_pipelines.storage.iceberg.data_files import DataFiles
from nvtrader_pipelines.storage.iceberg.snapshots import expire_snapshots, named_snapshots
from nvtrader_pipelines.storage.locks import home_lock
from nvtrader_pipelines.storage.object_store import store_errors
from nvtrader_pipelines.storage.read_sources import note_read
from nvtrader_pipelines.storage.settings import tables_folder
from nvtrader_pipelines.storage.table import Table
from nvtrader_pipelines.storage.tables import MARKET_PANEL, PINNED, REBALANCE_PLAN, RUNS, TABLES

KEY_TYPES = {pl.String, pl.Int32, pl.Int64}  # never floats: a predicate on a float deletes rows that hold NaN
MIN_SNAPSHOTS = 20  # the newest snapshots of a table stay, however old
EXPIRY_INTERVAL = 10  # commits between expiries: the cost of a pyiceberg commit grows with the number of snapshots
PINNING_GRACE = timedelta(hours=1)  # a run may have read a market snapshot that it has not named yet


@dataclass(frozen=True)
class TableState:
    """Size and snapshot of a table."""

    name: str
    n_rows: int
    n_files: int
    n_bytes: int
    snapshot_id: int | None
    updated_at: datetime | None

    @classmethod
    def of(cls, name: str, snapshot: Snapshot | None) -> Self:
        """State of a table at a snapshot; empty where it was never written."""
        if snapshot is None or snapshot.summary is None:
            return cls(name, 0, 0, 0, None, None)
        totals = snapshot.summary.additional_properties
        return cls(
            name,
            n_rows=int(totals.get("total-records", 0)),
            n_files=int(totals.get("total-data-files", 0)),
            n_bytes=int(totals.get("total-files-size", 0)),
            snapshot_id=snapshot.snapshot_id,
            updated_at=datetime.fromtimestamp(snapshot.timestamp_ms / 1000, UTC),
        )


class Warehouse:
    """Iceberg tables in `warehouse/iceberg`; a table is created on its first write."""

    def __init__(self, home: Home, ledger_snapshots: Callable[[], Iterable[str]]) -> None:
        self.home = home
        self._ledger_snapshots = ledger_snapshots  # `snapshot_ids` of all runs in the ledger, complete or not
        self._catalog: SqlCatalog | None = None  # opened on first use
        self._cached_frames: dict[tuple[str, ...], tuple[int | None, pl.DataFrame]] = {}  # by table and columns

    def replace(self, table: Table, rows: pl.DataFrame | Iterable[pl.DataFrame], where: Where) -> int | None:
        """Replace exactly the rows whose keys are among the given values, in one commit.

        The new rows are written to files before the table's lock is taken; batches are never in memory all at once.
        If the process is killed, the table holds the old rows or the new ones. Float NaN is written as null, and an
        empty `where` replaces the whole table. Returns the current snapshot id.

        Raises:
            ValueError: if columns differ from the table's, a key is not string or integer, or a row is outside `where`.
            StorageError: if a file is missing, or the object store fails; the table is as before.
        """
        _require_keys(table, where)
        iceberg = self.load(table)  # before the lock, which creating and updating a table take too
        with store_errors(tables_folder(self.home)):
            with DataFiles(iceberg) as files:
                for batch in [rows] if isinstance(rows, pl.DataFrame) else rows:
                    _require_columns(table, batch)
                    _require_inside(table, batch, where)
                    files.write(batch)
            with home_lock(self.home, table.name):
                return self._commit_rows(table, files.paths, where)

    @retry_on_conflict
    def _commit_rows(self, table: Table, paths: list[str], where: Where) -> int | None:
        iceberg = self.load(table)
        with DataFiles(iceberg) as rest, table_errors(self.home, table):
            removed = find_files(table, iceberg, where, rest)
        swap_files(iceberg, removed, [*paths, *rest.paths])
        self._expire_periodically(table, iceberg)
        snapshot = iceberg.current_snapshot()
        return snapshot.snapshot_id if snapshot else None

    def merge(self, table: Table, merges: Sequence[Merge]) -> list[Merge]:
        """Replace files by others that hold the same rows, in one commit.

        Returns:
            The committed merges, whose sources were all still live; new files of the other merges are deleted.
        """
        with store_errors(tables_folder(self.home)), home_lock(self.home, table.name):
            return self._commit_merges(table, merges)

    @retry_on_conflict
    def _commit_merges(self, table: Table, merges: Sequence[Merge]) -> list[Merge]:
        iceberg = self.load(table)
        live = {task.file.file_path for task in plan_files(table, iceberg)}
        valid = [merge for merge in merges if live.issuperset(file.file_path for file in merge.sources)]
        for late in (merge for merge in merges if merge not in valid):
            late.discard()
        removed = list(chain(*(merge.sources for merge in valid)))
        swap_files(iceberg, removed, list(chain(*(merge.paths for merge in valid))))
        return valid

    def _expire_periodically(self, table: Table, iceberg: IcebergTable) -> None:
        """Expire old snapshots every few commits, or each commit would cost more than the last."""
        snapshot = iceberg.current_snapshot()
        if snapshot is None or (snapshot.sequence_number or 0) % EXPIRY_INTERVAL > 1:  # a commit adds one or two
            return
        with contextlib.suppress(CommitFailedException, StorageError):  # the rows are committed; upkeep expires later
            if table.name in {table.name for table in PINNED}:
                expire_snapshots(iceberg, self.pinned_snapshots(), datetime.now(UTC) - PINNING_GRACE, MIN_SNAPSHOTS)
            else:
                expire_snapshots(iceberg, set(), datetime.now(UTC), MIN_SNAPSHOTS)

    def pinned_snapshots(self) -> set[int]:
        """Ids of the snapshots named by a panel, a rebalance plan, or a run, complete or not."""
        named = (self.read(table, columns=["snapshot_ids"])["snapshot_ids"] for table in (RUNS, REBALANCE_PLAN))
        return named_snapshots(self.read(MARKET_PANEL), set(chain(*named, self._ledger_snapshots())))

    def replace_years(self, table: Table, rows: pl.DataFrame, years: Sequence[int]) -> int:
        """Replace the given years by the rows of those years, and return their number."""
        inside = rows.filter(pl.col("year").is_in(list(years)))
        self.replace(table, inside, {"year": years})
        return len(inside)

    def read(
        self,
        table: Table,
        where: Where | None = None,
        columns: Sequence[str] | None = None,
        snapshot_id: int | None = None,
    ) -> pl.DataFrame:
        """Read rows of a table, currently or at a snapshot.

        Raises:
            StorageError: if the snapshot has expired or a file is missing.
        """
        with table_errors(self.home, table):
            rows = self.scan(table, where, snapshot_id).filter(key_filter(where or {}))
            return rows.select(columns or table.schema.names()).collect()

    def scan(self, table: Table, where: Where | None = None, snapshot_id: int | None = None) -> pl.LazyFrame:
        """Scan the files of a table that may have rows of these keys, currently or at a snapshot.

        Raises:
            StorageError: if the snapshot has expired.
        """
        iceberg = self.find(table)
        if snapshot_id is not None and (iceberg is None or iceberg.snapshot_by_id(snapshot_id) is None):
            raise StorageError(f"{table.name} has no snapshot {snapshot_id}; it has expired")
        return scan_files(table, live_paths(table, iceberg, where, snapshot_id))

    def read_whole(self, table: Table, columns: Sequence[str]) -> pl.DataFrame:
        """Read columns of a small table once per snapshot: planning a read costs more than its rows.

        Raises:
            StorageError: as `read`.
        """
        snapshot_id, key = self.snapshot_id(table), (table.name, *columns)
        frame = self._cached_frames.get(key)
        if frame is None or frame[0] != snapshot_id:
            frame = self._cached_frames[key] = snapshot_id, self.read(table, columns=columns, snapshot_id=snapshot_id)
        return frame[1]

    def snapshot_id(self, table: Table) -> int | None:
        """Id of the current snapshot, or None if the table was never written."""
        snapshot = self._snapshot(table)
        return snapshot.snapshot_id if snapshot else None

    def describe(self, table: Table) -> TableState:
        """Describe a table by its rows, files, bytes and snapshot, from the metadata alone."""
        return TableState.of(table.name, self._snapshot(table))

    def describe_all(self) -> pl.DataFrame:
        """Describe every table, one row each."""
        return pl.DataFrame([asdict(self.describe(table)) for table in TABLES])

    def metadata_files(self) -> dict[str, str]:
        """Current metadata file of each table by name; of a table that was never written, none."""
        query = "SELECT table_namespace || '.' || table_name, metadata_location FROM iceberg_tables"
        with self._open().engine.connect() as connection:
            return {name: file for name, file in connection.execute(sa.text(query))}  # noqa: C416 - rows are no pairs

    def load(self, table: Table) -> IcebergTable:
        """Load the pyiceberg table, creating it if necessary."""
        return load_table(self._open(), self.home, table)

    def find(self, table: Table) -> IcebergTable | None:
        """Load the pyiceberg table, or return None if it was never written; creates nothing."""
        return find_table(self._open(), self.home, table)

    def _snapshot(self, table: Table) -> Snapshot | None:
        iceberg = self.find(table)
        return iceberg.current_snapshot() if iceberg else None

    def _open(self) -> SqlCatalog:
        note_read(self.home.catalog)
        if self._catalog is None:
            self._catalog = open_catalog(self.home)
        return self._catalog


def _require_columns(table: Table, rows: pl.DataFrame) -> None:
    missing, unknown = set(table.schema) - set(rows.columns), set(rows.columns) - set(table.schema)
    if missing or unknown:
        raise ValueError(f"rows of {table.name} lack columns {sorted(missing)}, have unknown ones {sorted(unknown)}")


def _require_keys(table: Table, where: Where) -> None:
    wrong = [column for column in where if table.schema[column] not in KEY_TYPES]
    if wrong:
        raise ValueError(f"keys of {table.name} must be string or integer columns, not {', '.join(wrong)}")


def _require_inside(table: Table, rows: pl.DataFrame, where: Where) -> None:
    for column, values in where.items():
        inside = key_filter({column: values})
        if not rows.select(inside.all()).item():
            others = rows.filter(~inside)[column].unique().head(3).to_list()
            raise ValueError(f"rows of {table.name} have {column} outside the values to replace: {others}")
