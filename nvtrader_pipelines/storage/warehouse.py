"""The tables of one home: rows are replaced by key in one commit, and read at any snapshot."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime

import polars as pl
import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException, ValidationException
from pyiceberg.expressions import AlwaysTrue, And, BooleanExpression, In
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.table import Table as IcebergTable
from tenacity import retry, retry_if_exception_type, stop_after_attempt, wait_random_exponential

from nvtrader_pipelines.storage.catalog import find_table, load_table, lock_path, missing_file, open_catalog
from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.files import locked
from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.table import Table, polars_type
from nvtrader_pipelines.storage.tables import TABLES

Where = Mapping[str, Sequence[str] | Sequence[int]]

KEY_KINDS = {"string", "int", "long"}  # never floats: a predicate on a float deletes rows that hold NaN


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

    def __init__(self, home: Home) -> None:
        self.home = home
        self._catalog: SqlCatalog | None = None

    def replace(self, table: Table, rows: pl.DataFrame, where: Where) -> int | None:
        """Replace exactly the rows whose keys are among the given values, in one commit.

        Args:
            table: the table.
            rows: the new rows, all inside `where`; float NaN is written as null.
            where: values of string or integer columns; empty for the whole table.

        Returns:
            The snapshot, or the one before where there was nothing to replace.

        Raises:
            ValueError: if the columns are not the table's, a key is a float column, or a row lies outside `where`.
        """
        _require_columns(table, rows)
        _require_keys(table, where)
        _require_inside(table, rows, where)
        self.load(table)  # made or widened before the lock, which both need
        with locked(lock_path(self.home, table.name)):
            return self._swap(table, rows.fill_nan(None), _filter(where))

    @retry(
        retry=retry_if_exception_type((ValidationException, CommitFailedException)),
        wait=wait_random_exponential(multiplier=0.02, max=1.0),
        stop=stop_after_attempt(20),
        reraise=True,
    )
    def _swap(self, table: Table, rows: pl.DataFrame, old: BooleanExpression) -> int | None:
        iceberg = self.load(table)
        content = _arrow(rows, iceberg)
        replaces = any(True for _ in iceberg.scan(old).plan_files())
        if replaces or len(content):
            with warnings.catch_warnings(), iceberg.transaction() as transaction:
                # A file may hold values around those replaced, and none of them.
                warnings.filterwarnings("ignore", message="Delete operation did not match any records")
                if replaces:
                    transaction.delete(old)
                if len(content):
                    transaction.append(content)
        after = self.load(table).current_snapshot()
        return after.snapshot_id if after else None

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
            rows = _rows(table, iceberg, where or {}, snapshot_id)
            return rows.select(columns or [column.name for column in table.fields]).collect()
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


def _filter(where: Where) -> BooleanExpression:
    terms: list[BooleanExpression] = []
    terms.extend(In(column, set(values)) for column, values in where.items())  # pyright: ignore[reportCallIssue]
    if not terms:
        return AlwaysTrue()
    return terms[0] if len(terms) == 1 else And(*terms)


def _rows(table: Table, iceberg: IcebergTable | None, where: Where, snapshot_id: int | None) -> pl.LazyFrame:
    """The live rows, partition by partition, each as it was written; columns a file lacks are null.

    polars reads many small files several times faster than pyiceberg's own scan.
    """
    tasks = live_files(table, iceberg, _filter(where), snapshot_id)
    kinds = {column.name: polars_type(column.kind) for column in table.fields}
    if not tasks:
        return pl.LazyFrame(schema=kinds)
    scan = pl.scan_parquet(
        tasks, schema=kinds, missing_columns="insert", extra_columns="ignore", hive_partitioning=False, glob=False
    )
    return scan.filter(*(pl.col(column).is_in(list(values)) for column, values in where.items()))


def live_files(
    table: Table, iceberg: IcebergTable | None, where: BooleanExpression | None = None, snapshot_id: int | None = None
) -> list[str]:
    """Paths of the data files of a snapshot that may hold such rows, partition by partition.

    Raises:
        StorageError: if the table holds row-level deletes, which this package never writes.
    """
    if iceberg is None:
        return []
    tasks = list(iceberg.scan(where or AlwaysTrue(), snapshot_id=snapshot_id).plan_files())
    if any(task.delete_files for task in tasks):
        raise StorageError(f"{table.name} holds row-level deletes written by another engine; compact it there first")
    tasks.sort(key=lambda task: [str(value) for value in task.file.partition])
    return [task.file.file_path.removeprefix("file://") for task in tasks]


def _arrow(rows: pl.DataFrame, iceberg: IcebergTable) -> pa.Table:
    """The rows in the table's own column order and types; a column that is no longer computed is null."""
    schema = schema_to_pyarrow(iceberg.schema(), include_field_ids=False)
    gone = [pl.lit(None).alias(name) for name in schema.names if name not in rows.columns]
    rows = rows.with_columns(gone)
    return rows.select(schema.names).to_arrow().cast(schema)


def _require_columns(table: Table, rows: pl.DataFrame) -> None:
    wanted, found = {column.name for column in table.fields}, set(rows.columns)
    if wanted != found:
        raise ValueError(
            f"rows of {table.name} must have exactly its columns; missing: {sorted(wanted - found) or 'none'}, "
            f"unknown: {sorted(found - wanted) or 'none'}"
        )


def _require_keys(table: Table, where: Where) -> None:
    wrong = [column for column in where if table.kind_of(column) not in KEY_KINDS]
    if wrong:
        raise ValueError(
            f"rows of {table.name} are replaced by string or integer columns, but {', '.join(wrong)} is none; "
            "a predicate on a float would also delete rows that hold NaN"
        )


def _require_inside(table: Table, rows: pl.DataFrame, where: Where) -> None:
    for column, values in where.items():
        strangers = rows.filter(~pl.col(column).is_in(list(values)) | pl.col(column).is_null())[column].unique()
        if len(strangers):
            raise ValueError(
                f"{table.name}: rows to write must have {column} among the {len(values)} values replaced, "
                f"but {len(strangers)} other values were found ({strangers.head(3).to_list()})"
            )
