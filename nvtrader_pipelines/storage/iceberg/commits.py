"""Atomic commits that exchange files of a table, and scans over its files."""

import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import and_

import polars as pl
import pyarrow.parquet as pq
from pyiceberg.exceptions import CommitFailedException, ValidationException
from pyiceberg.expressions import AlwaysTrue, And, BooleanExpression, In
from pyiceberg.manifest import DataFile
from pyiceberg.table import FileScanTask, Transaction
from pyiceberg.table import Table as IcebergTable
from pyiceberg.table.metadata import TableMetadata
from tenacity import retry, retry_if_exception_type, stop_after_attempt, wait_random_exponential

from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.iceberg.data_files import ROWS_PER_GROUP, DataFiles
from nvtrader_pipelines.storage.iceberg.fsync_io import delete_file
from nvtrader_pipelines.storage.iceberg.locations import local_path
from nvtrader_pipelines.storage.object_store import is_object, open_object, read_options
from nvtrader_pipelines.storage.table import Table

Where = Mapping[str, Sequence[str] | Sequence[int]]

retry_on_conflict = retry(  # with the table loaded anew, since another engine may commit without our lock
    retry=retry_if_exception_type((ValidationException, CommitFailedException)),
    wait=wait_random_exponential(multiplier=0.02, max=1.0),
    stop=stop_after_attempt(20),
    reraise=True,
)


@dataclass(frozen=True, eq=False)
class Merge:
    """Files of a partition and the new files that hold the same rows."""

    sources: Sequence[DataFile]
    paths: Sequence[str]

    def discard(self) -> None:
        """Delete the new files, if they were not committed."""
        for path in self.paths:
            delete_file(path)


class _Transaction(Transaction):
    """Transaction that applies its updates once; the library does at each of some thirty looks at the metadata."""

    _applied: tuple[object, object, TableMetadata] | None = None  # updates, metadata before, and after

    @property
    def table_metadata(self) -> TableMetadata:
        """Metadata of the table with the updates of the transaction."""
        updates, before, applied = self._applied or (None, None, None)
        if applied is None or updates is not self._updates or before is not self._table.metadata:
            applied = super().table_metadata
            self._applied = self._updates, self._table.metadata, applied
        return applied


def swap_files(iceberg: IcebergTable, removed: Sequence[DataFile], paths: Sequence[str]) -> None:
    """Exchange files of a table in one commit; the caller holds the table's lock.

    Raises:
        ValidationException: if a file to remove is no longer in the table.
        CommitFailedException: if another engine has committed since the table was loaded.
    """
    if not removed and not paths:
        return
    for path in (local_path(iceberg, file.file_path) for file in removed):
        if not is_object(path):  # its modification time now records when it was last needed, for the grace of upkeep
            with contextlib.suppress(FileNotFoundError):
                os.utime(path)
    with _Transaction(iceberg) as transaction:
        if removed:
            with transaction.update_snapshot().overwrite() as removal:
                for file in removed:
                    removal.delete_data_file(file)
        if paths:
            transaction.add_files(list(paths), check_duplicate_files=False)


def find_files(table: Table, iceberg: IcebergTable, where: Where, rest: DataFiles) -> list[DataFile]:
    """Find the files that hold rows with these keys, and write their other rows to `rest`."""
    files = []
    for task in plan_files(table, iceberg, where):
        path = local_path(iceberg, task.file.file_path)
        inside = key_filter(where)
        if task.residual == AlwaysTrue():  # the partition implies that every row matches
            files.append(task.file)
            continue
        n_inside, n_rows = scan_files(table, [path]).select(n=inside.sum(), rows=pl.len()).collect().row(0)
        if n_inside:
            files.append(task.file)
        if 0 < n_inside < n_rows:
            for batch in read_batches(table, [path]):
                rest.write(batch.filter(~inside))
    return files


def plan_files(
    table: Table, iceberg: IcebergTable, where: Where | None = None, snapshot_id: int | None = None
) -> list[FileScanTask]:
    """Plan the data files of a snapshot that may hold rows with these keys, sorted by partition.

    Raises:
        StorageError: if the table holds row-level deletes; this package never writes any.
    """
    tasks = list(iceberg.scan(_scan_filter(where or {}), snapshot_id=snapshot_id).plan_files())
    if any(task.delete_files for task in tasks):
        raise StorageError(f"{table.name} holds row-level deletes written by another engine; compact it there first")
    return sorted(tasks, key=lambda task: [str(value) for value in task.file.partition])


def live_paths(
    table: Table, iceberg: IcebergTable | None, where: Where | None = None, snapshot_id: int | None = None
) -> list[str]:
    """Paths of the planned data files; empty if the table was never written.

    Raises:
        StorageError: if the table holds row-level deletes; this package never writes any.
    """
    if iceberg is None:
        return []
    return [local_path(iceberg, task.file.file_path) for task in plan_files(table, iceberg, where, snapshot_id)]


def scan_files(table: Table, paths: list[str]) -> pl.LazyFrame:
    """Scan files one after the other, rows in written order; columns that a file lacks are null.

    polars reads many small files several times faster than pyiceberg's own scan.
    """
    if not paths:
        return pl.LazyFrame(schema=table.schema)
    return pl.scan_parquet(
        paths,
        schema=table.schema,
        missing_columns="insert",
        extra_columns="ignore",
        hive_partitioning=False,
        glob=False,
        **read_options(paths[0]),
    )


def read_batches(table: Table, paths: Iterable[str]) -> Iterator[pl.DataFrame]:
    """Read files in batches, with all columns of the file, and null for columns that it lacks."""
    for path in paths:
        with pq.ParquetFile(open_object(path) if is_object(path) else path) as file:
            for batch in file.iter_batches(ROWS_PER_GROUP):
                rows = pl.DataFrame(batch)
                missing = [
                    pl.lit(None, kind).alias(name) for name, kind in table.schema.items() if name not in rows.columns
                ]
                yield rows.with_columns(missing)


def key_filter(where: Where) -> pl.Expr:
    """Filter for rows whose keys are all among the given values; null never matches."""
    inside = [pl.col(column).is_in(list(values)).fill_null(value=False) for column, values in where.items()]
    return reduce(and_, inside, pl.lit(value=True))


def _scan_filter(where: Where) -> BooleanExpression:
    terms: list[BooleanExpression] = []
    terms.extend(In(column, set(values)) for column, values in where.items())  # pyright: ignore[reportCallIssue]
    if not terms:
        return AlwaysTrue()
    return terms[0] if len(terms) == 1 else And(*terms)
