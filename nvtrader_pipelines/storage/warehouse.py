"""The tables of one home: rows are replaced by key in one commit, and read at any snapshot."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime

import polars as pl
import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError, ValidationException
from pyiceberg.expressions import AlwaysTrue, And, BooleanExpression, In
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.table import Table as IcebergTable
from sqlalchemy import event
from tenacity import retry, retry_if_exception_type, stop_after_attempt, wait_random_exponential

from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.files import locked
from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.tables import TABLES, Table

Where = Mapping[str, Sequence[str] | Sequence[int]]

PROPERTIES = {
    "format-version": "2",
    "write.parquet.compression-codec": "zstd",
    "write.parquet.dict-size-bytes": "262144",  # the default of 2 MB costs 1.4 times on float columns
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "10",
    "commit.manifest-merge.enabled": "true",
    "commit.manifest.min-count-to-merge": "20",
    "commit.retry.num-retries": "30",
    "commit.retry.min-wait-ms": "20",
    "commit.retry.max-wait-ms": "1000",
    # Longer keys must be whole in the statistics, or a delete reads the partition to prove that it may go.
    "write.metadata.metrics.column.spec_hash": "full",
    "write.metadata.metrics.column.run_id": "full",
}
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
            ValueError: if a key is a float column, or a row lies outside `where`.
        """
        _require_keys(table, where)
        _require_inside(table, rows, where)
        with locked(self.home.iceberg / ".locks" / f"{table.name}.lock"):
            return self._swap(table, rows.fill_nan(None), _filter(where))

    @retry(
        retry=retry_if_exception_type((ValidationException, CommitFailedException)),
        wait=wait_random_exponential(multiplier=0.02, max=1.0),
        stop=stop_after_attempt(20),
        reraise=True,
    )
    def _swap(self, table: Table, rows: pl.DataFrame, old: BooleanExpression) -> int | None:
        iceberg = self._load(table)
        content = _arrow(rows, iceberg)
        before = iceberg.current_snapshot()
        if before is None and not len(content):
            return None
        with warnings.catch_warnings(), iceberg.transaction() as transaction:
            warnings.filterwarnings("ignore", message="Delete operation did not match any records")
            if before is not None:
                transaction.delete(old)
            if len(content):
                transaction.append(content)
        after = self._load(table).current_snapshot()
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
            StorageError: if the snapshot is gone or a data file is missing.
        """
        names = [column.name for column in table.fields]
        chosen = names if columns is None else list(columns)
        try:
            scan = self._load(table).scan(_filter(where or {}), tuple(chosen), snapshot_id=snapshot_id)
            found = scan.to_arrow()
        except FileNotFoundError as error:
            raise StorageError(
                f"{table.name} misses the file {error.filename or error}; the warehouse was moved or files were "
                f"deleted: put it back to where it was built, or remove {self.home.warehouse} and run `nvtrader run`"
            ) from error
        except ValueError as error:
            raise StorageError(f"{table.name} has no snapshot {snapshot_id}; it has expired ({error})") from error
        frame = pl.DataFrame(pl.from_arrow(found))
        return frame.select(chosen)

    def snapshot_id(self, table: Table) -> int | None:
        """The current snapshot; None where nothing was ever written."""
        snapshot = self._load(table).current_snapshot()
        return snapshot.snapshot_id if snapshot else None

    def describe(self, table: Table) -> TableState:
        """Rows, files, bytes and snapshot, from the table's metadata only."""
        snapshot = self._load(table).current_snapshot()
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
        """The Iceberg table itself, for what reads its files."""
        return self._load(table)

    def catalog(self) -> SqlCatalog:
        """The catalog, opened once; concurrent first uses take turns."""
        if self._catalog is None:
            self.home.iceberg.mkdir(parents=True, exist_ok=True)
            with locked(self.home.iceberg / ".locks" / "catalog.lock"):
                self._catalog = _open_catalog(self.home)
        return self._catalog

    def _load(self, table: Table) -> IcebergTable:
        catalog = self.catalog()
        try:
            return catalog.load_table(table.name)
        except NoSuchTableError:
            with locked(self.home.iceberg / ".locks" / "catalog.lock"):
                return _create(catalog, table)


def _open_catalog(home: Home) -> SqlCatalog:
    catalog = SqlCatalog(
        "nvtrader",
        uri=f"sqlite:///{home.catalog}?timeout=60",
        warehouse=home.iceberg.as_uri(),
        **{"py-io-impl": "nvtrader_pipelines.storage.fsync_io.FsyncFileIO"},
    )

    @event.listens_for(catalog.engine, "connect")
    def _write_ahead(connection, _record) -> None:  # noqa: ANN001 - a DBAPI connection has no type
        connection.execute("PRAGMA journal_mode=WAL")

    return catalog


def _create(catalog: SqlCatalog, table: Table) -> IcebergTable:
    catalog.create_namespace_if_not_exists(table.namespace)
    known = {column.name for column in table.fields}
    prefix = "write.metadata.metrics.column."
    properties = {k: v for k, v in PROPERTIES.items() if not k.startswith(prefix) or k[len(prefix) :] in known}
    return catalog.create_table_if_not_exists(
        table.name, table.schema(), partition_spec=table.partition_spec(), properties=properties
    )


def _filter(where: Where) -> BooleanExpression:
    terms: list[BooleanExpression] = []
    terms.extend(In(column, set(values)) for column, values in where.items())  # pyright: ignore[reportCallIssue]
    if not terms:
        return AlwaysTrue()
    return terms[0] if len(terms) == 1 else And(*terms)


def _arrow(rows: pl.DataFrame, iceberg: IcebergTable) -> pa.Table:
    """The rows in the table's own column order and types."""
    schema = schema_to_pyarrow(iceberg.schema(), include_field_ids=False)
    return rows.select(schema.names).to_arrow().cast(schema)


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
