"""One commit of a table: files out, new files in, whole or not at all."""

import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import and_
from pathlib import Path

import polars as pl
import pyarrow.parquet as pq
from pyiceberg.exceptions import CommitFailedException, ValidationException
from pyiceberg.expressions import AlwaysTrue, And, BooleanExpression, In
from pyiceberg.manifest import DataFile
from pyiceberg.table import FileScanTask
from pyiceberg.table import Table as IcebergTable
from tenacity import retry, retry_if_exception_type, stop_after_attempt, wait_random_exponential

from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.iceberg.data_files import ROWS_PER_GROUP, DataFiles
from nvtrader_pipelines.storage.table import Table

Where = Mapping[str, Sequence[str] | Sequence[int]]

retried = retry(  # from the table as it is then: another engine may have committed without our lock
    retry=retry_if_exception_type((ValidationException, CommitFailedException)),
    wait=wait_random_exponential(multiplier=0.02, max=1.0),
    stop=stop_after_attempt(20),
    reraise=True,
)


@dataclass(frozen=True, eq=False)
class Merge:
    """Files of one partition, and the new ones that hold their rows."""

    sources: Sequence[DataFile]
    paths: Sequence[str]

    def discard(self) -> None:
        """Delete the new files, which were never committed."""
        for path in self.paths:
            Path(path).unlink(missing_ok=True)


def exchange(iceberg: IcebergTable, gone: Sequence[DataFile], paths: Sequence[str]) -> None:
    """Take files out of the table and new ones in, in one commit; the caller holds the table's lock.

    Raises:
        ValidationException: if a file that is to go has gone already.
        CommitFailedException: if another engine has committed since the table was loaded.
    """
    if not gone and not paths:
        return
    for file in gone:  # its time says from then on when it was last needed, which tells the sweep how long to wait
        with contextlib.suppress(FileNotFoundError):
            os.utime(path_of(file))
    with iceberg.transaction() as transaction:
        if gone:
            with transaction.update_snapshot().overwrite() as removal:
                for file in gone:
                    removal.delete_data_file(file)
        if paths:
            transaction.add_files(list(paths), check_duplicate_files=False)


def files_with(table: Table, iceberg: IcebergTable, where: Where, rest: DataFiles) -> list[DataFile]:
    """The files that hold rows with such keys; what else they hold is written to `rest`."""
    found = []
    for task in planned(table, iceberg, where):
        path = path_of(task.file)
        inside = all_of(where)
        if task.residual == AlwaysTrue():  # by its partition all of it is
            found.append(task.file)
            continue
        n_inside, n_rows = scan_files(table, [path]).select(n=inside.sum(), rows=pl.len()).collect().row(0)
        if n_inside:
            found.append(task.file)
        if 0 < n_inside < n_rows:
            for batch in stored_batches(table, [path]):
                rest.write(batch.filter(~inside))
    return found


def planned(
    table: Table, iceberg: IcebergTable, where: Where | None = None, snapshot_id: int | None = None
) -> list[FileScanTask]:
    """The data files of a snapshot that may hold rows with such keys, partition by partition.

    Raises:
        StorageError: if the table holds row-level deletes, which this package never writes.
    """
    tasks = list(iceberg.scan(_filter(where or {}), snapshot_id=snapshot_id).plan_files())
    if any(task.delete_files for task in tasks):
        raise StorageError(f"{table.name} holds row-level deletes written by another engine; compact it there first")
    return sorted(tasks, key=lambda task: [str(value) for value in task.file.partition])


def live_files(
    table: Table, iceberg: IcebergTable | None, where: Where | None = None, snapshot_id: int | None = None
) -> list[str]:
    """Paths of the planned files; none where the table was never written.

    Raises:
        StorageError: if the table holds row-level deletes, which this package never writes.
    """
    return [] if iceberg is None else [path_of(task.file) for task in planned(table, iceberg, where, snapshot_id)]


def scan_files(table: Table, paths: list[str]) -> pl.LazyFrame:
    """The rows of files, one file after the other, each as it was written; columns a file lacks are null.

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
    )


def stored_batches(table: Table, paths: Iterable[str]) -> Iterator[pl.DataFrame]:
    """The rows of files in batches, with all columns that a file has and those of the table that it lacks."""
    for path in paths:
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(ROWS_PER_GROUP):
                rows = pl.DataFrame(batch)
                lacking = [
                    pl.lit(None, kind).alias(name) for name, kind in table.schema.items() if name not in rows.columns
                ]
                yield rows.with_columns(lacking)


def all_of(where: Where) -> pl.Expr:
    """Whether a row's keys are all among the values; null is among none."""
    inside = [pl.col(column).is_in(list(values)).fill_null(value=False) for column, values in where.items()]
    return reduce(and_, inside, pl.lit(value=True))


def path_of(file: DataFile) -> str:
    """Where a data file lies."""
    return file.file_path.removeprefix("file://")


def _filter(where: Where) -> BooleanExpression:
    terms: list[BooleanExpression] = []
    terms.extend(In(column, set(values)) for column, values in where.items())  # pyright: ignore[reportCallIssue]
    if not terms:
        return AlwaysTrue()
    return terms[0] if len(terms) == 1 else And(*terms)
