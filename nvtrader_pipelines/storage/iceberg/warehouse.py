"""The tables of one home: rows are replaced by key in one commit, and read at any snapshot."""

import contextlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from itertools import chain

import polars as pl
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table as IcebergTable

from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.files import locked
from nvtrader_pipelines.storage.home import Home, lock_path
from nvtrader_pipelines.storage.iceberg.catalog import find_table, load_table, missing_file, open_catalog
from nvtrader_pipelines.storage.iceberg.commits import (
    Merge,
    Where,
    all_of,
    exchange,
    files_with,
    live_files,
    path_of,
    retried,
    scan_files,
)
from nvtrader_pipelines.storage.iceberg.data_files import DataFiles
from nvtrader_pipelines.storage.iceberg.snapshots import expire, named_snapshots
from nvtrader_pipelines.storage.table import Table
from nvtrader_pipelines.storage.tables import MARKET_PANEL, PINNED, REBALANCE_PLAN, RUNS, TABLES

KEY_TYPES = {pl.String, pl.Int32, pl.Int64}  # never floats: a predicate on a float deletes rows that hold NaN
N_NEWEST = 20  # snapshots of a table that stay whatever their age
EVERY = 10  # snapshots after which older ones go: a commit of pyiceberg's costs as much as there are snapshots
PINNING = timedelta(hours=1)  # a snapshot of the market may be about to be named by the run that read it


@dataclass(frozen=True)
class TableState:
    """What a table holds now."""

    name: str
    n_rows: int
    n_files: int
    n_bytes: int
    snapshot_id: int | None
    updated_at: datetime | None


class Warehouse:
    """Iceberg tables under `warehouse/iceberg`, catalogued in SQLite; tables are made when first used."""

    def __init__(self, home: Home, begun_snapshots: Callable[[], Iterable[str]]) -> None:
        """Open nothing yet.

        Args:
            home: where the tables lie.
            begun_snapshots: gives the `snapshot_ids` of all runs ever begun, which must stay readable.
        """
        self.home, self._begun_snapshots = home, begun_snapshots
        self._catalog: SqlCatalog | None = None

    def replace(self, table: Table, rows: pl.DataFrame | Iterable[pl.DataFrame], where: Where) -> int | None:
        """Replace exactly the rows whose keys are among the given values, in one commit.

        The new rows are in files before the table's lock is taken; rows that come in batches are never in memory
        together. A process that is killed at any moment leaves the old rows or the new ones.

        Args:
            table: the table.
            rows: the new rows, at once or in batches, all inside `where`; float NaN is written as null.
            where: values of string or integer columns; empty for the whole table.

        Returns:
            The snapshot, or the one before where there was nothing to replace.

        Raises:
            ValueError: if the columns are not the table's, a key is a float column, or a row lies outside `where`.
        """
        _require_keys(table, where)
        iceberg = self.load(table)  # made or brought up to date before the lock, which both need
        with DataFiles(iceberg) as files:
            for batch in [rows] if isinstance(rows, pl.DataFrame) else rows:
                _require_columns(table, batch)
                _require_inside(table, batch, where)
                files.write(batch)
        with locked(lock_path(self.home, table.name)):
            return self._swap(table, files.paths, where)

    @retried
    def _swap(self, table: Table, paths: list[str], where: Where) -> int | None:
        iceberg = self.load(table)
        with DataFiles(iceberg) as rest:
            gone = files_with(table, iceberg, where, rest)
        exchange(iceberg, gone, [*paths, *rest.paths])
        self._stay_short(table, iceberg)
        snapshot = iceberg.current_snapshot()
        return snapshot.snapshot_id if snapshot else None

    def merge(self, table: Table, merges: Sequence[Merge]) -> list[Merge]:
        """Put files in the place of others that hold the same rows, in one commit.

        Returns:
            Those whose sources were all still there; the new files of the others are deleted.
        """
        with locked(lock_path(self.home, table.name)):
            return self._put(table, merges)

    @retried
    def _put(self, table: Table, merges: Sequence[Merge]) -> list[Merge]:
        iceberg = self.load(table)
        live = set(live_files(table, iceberg))
        valid = [merge for merge in merges if live.issuperset(map(path_of, merge.sources))]
        for late in (merge for merge in merges if merge not in valid):
            late.discard()
        exchange(iceberg, list(chain(*(each.sources for each in valid))), list(chain(*(each.paths for each in valid))))
        return valid

    def _stay_short(self, table: Table, iceberg: IcebergTable) -> None:
        """Every few commits drop old snapshots that nothing names, or each commit would cost more than the last."""
        snapshot = iceberg.current_snapshot()
        if snapshot is None or (snapshot.sequence_number or 0) % EVERY > 1:  # a commit makes one or two
            return
        with contextlib.suppress(CommitFailedException, StorageError):  # the rows are there; upkeep will do it
            if table.name in {each.name for each in PINNED}:
                expire(iceberg, self.pinned_snapshots(), datetime.now(UTC) - PINNING, N_NEWEST)
            else:
                expire(iceberg, set(), datetime.now(UTC), N_NEWEST)

    def pinned_snapshots(self) -> set[int]:
        """Every snapshot that a panel, a rebalance plan, or a run names, be it complete or only begun."""
        named = (self.read(table, columns=["snapshot_ids"])["snapshot_ids"] for table in (RUNS, REBALANCE_PLAN))
        return named_snapshots(self.read(MARKET_PANEL), set(chain(*named, self._begun_snapshots())))

    def replace_years(self, table: Table, rows: pl.DataFrame, years: Sequence[int]) -> int:
        """Replace the given years' partitions by those of the rows that fall into them; the number written."""
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
        """Rows of a table, now or at a snapshot.

        Raises:
            StorageError: if the snapshot is gone or a file is missing.
        """
        iceberg = self.find(table)
        if snapshot_id is not None and (iceberg is None or iceberg.snapshot_by_id(snapshot_id) is None):
            raise StorageError(f"{table.name} has no snapshot {snapshot_id} any more: it has expired")
        try:
            rows = scan_files(table, live_files(table, iceberg, where, snapshot_id)).filter(all_of(where or {}))
            return rows.select(columns or table.schema.names()).collect()
        except FileNotFoundError as error:
            raise missing_file(self.home, table, error) from error

    def snapshot_id(self, table: Table) -> int | None:
        """The current snapshot; None where nothing was ever written."""
        iceberg = self.find(table)
        snapshot = iceberg.current_snapshot() if iceberg else None
        return snapshot.snapshot_id if snapshot else None

    def describe(self, table: Table) -> TableState:
        """Rows, files, bytes and snapshot, from the table's metadata only."""
        iceberg = self.find(table)
        snapshot = iceberg.current_snapshot() if iceberg else None
        if snapshot is None or snapshot.summary is None:
            return TableState(table.name, 0, 0, 0, None, None)
        totals = snapshot.summary.additional_properties
        return TableState(
            table.name,
            n_rows=int(totals.get("total-records", 0)),
            n_files=int(totals.get("total-data-files", 0)),
            n_bytes=int(totals.get("total-files-size", 0)),
            snapshot_id=snapshot.snapshot_id,
            updated_at=datetime.fromtimestamp(snapshot.timestamp_ms / 1000, UTC),
        )

    def describe_all(self) -> pl.DataFrame:
        """One row per table."""
        return pl.DataFrame([asdict(self.describe(table)) for table in TABLES])

    def load(self, table: Table) -> IcebergTable:
        """The Iceberg table itself, made where there is none."""
        return load_table(self._open(), self.home, table)

    def find(self, table: Table) -> IcebergTable | None:
        """The Iceberg table itself, None where it was never written: reading makes nothing."""
        return find_table(self._open(), self.home, table)

    def _open(self) -> SqlCatalog:
        if self._catalog is None:
            self._catalog = open_catalog(self.home)
        return self._catalog


def _require_columns(table: Table, rows: pl.DataFrame) -> None:
    wanted, found = set(table.schema), set(rows.columns)
    if wanted != found:
        raise ValueError(
            f"rows of {table.name} must have exactly its columns; missing: {sorted(wanted - found) or 'none'}, "
            f"unknown: {sorted(found - wanted) or 'none'}"
        )


def _require_keys(table: Table, where: Where) -> None:
    wrong = [column for column in where if table.schema[column] not in KEY_TYPES]
    if wrong:
        raise ValueError(
            f"rows of {table.name} are replaced by string or integer columns, but {', '.join(wrong)} is none; "
            "a predicate on a float would also delete rows that hold NaN"
        )


def _require_inside(table: Table, rows: pl.DataFrame, where: Where) -> None:
    for column, values in where.items():
        inside = all_of({column: values})
        if not rows.select(inside.all()).item():
            strangers = rows.filter(~inside)[column].unique()
            raise ValueError(
                f"{table.name}: rows to write must have {column} among the {len(values)} values replaced, "
                f"but {len(strangers)} other values were found ({strangers.head(3).to_list()})"
            )
