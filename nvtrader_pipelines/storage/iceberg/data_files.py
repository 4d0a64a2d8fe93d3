"""New Parquet files of a table, written per partition before they are committed."""

import uuid
from collections.abc import Iterator
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote_plus

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.schema import Schema
from pyiceberg.table import Table as IcebergTable
from pyiceberg.types import ListType, NestedField

from nvtrader_pipelines.storage.iceberg import fsync_io
from nvtrader_pipelines.storage.iceberg.locations import local_path
from nvtrader_pipelines.storage.object_store import is_object

ROWS_PER_GROUP = 131_072  # rows buffered before encoding, and read by a thread at a time
MAX_FILE_BYTES = 512 << 20
DICTIONARY_BYTES = 256 << 10  # above this size a dictionary does not pay
NO_DICTIONARY = ("float", "double", "long", "boolean")  # types whose values rarely repeat


class DataFiles:
    """Writer of a table's new files, per partition; an error in the `with` block deletes them.

    At most one row group per open partition waits to be encoded, so rows that arrive in batches are never in memory
    all at once.
    """

    def __init__(self, iceberg: IcebergTable) -> None:
        self._folder = f"{local_path(iceberg, iceberg.location())}/data"
        self._schema = iceberg.schema()
        self._by = [field.name for field in iceberg.spec().fields]
        self._open: dict[tuple[Any, ...], _PartitionFiles] = {}

    def write(self, rows: pl.DataFrame) -> None:
        """Add rows; float NaN and columns that the rows lack are written as null.

        Raises:
            ValueError: if a value does not fit its column.
        """
        for key, part in _split_by_partition(rows.fill_nan(None), self._by):
            if key not in self._open:
                folder = "/".join([self._folder, *map(_folder_name, self._by, key)])
                constants = {name: value for name, value in zip(self._by, key, strict=True) if isinstance(value, str)}
                self._open[key] = _PartitionFiles(folder, self._schema, constants)
            self._open[key].write(part)

    @property
    def paths(self) -> list[str]:
        """Paths of the files so far; the files are complete after the block."""
        return [path for files in self._open.values() for path in files.paths]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, _: object, __: TracebackType | None) -> None:
        for files in self._open.values():
            if kind is None:
                files.close()
            else:
                files.discard()


class _PartitionFiles:
    """Files of a partition, written one after the other."""

    def __init__(self, folder: str, schema: Schema, constants: dict[str, str]) -> None:
        from pyiceberg.io.pyarrow import schema_to_pyarrow  # a quarter of a second to import, and reading needs none

        self._folder, self._schema, self._constants = folder, schema, constants
        fields = schema_to_pyarrow(schema)
        text = pa.dictionary(pa.int32(), pa.string())
        self._arrow = pa.schema([field.with_type(text) if field.name in constants else field for field in fields])
        self._waiting: list[pa.Table] = []
        self._n_waiting = 0
        self._writer: pq.ParquetWriter | None = None
        self._stream: Any = None  # of the writer
        self._name = uuid.uuid4().hex
        self.paths: list[str] = []

    def write(self, rows: pl.DataFrame) -> None:
        self._waiting.append(self._to_arrow(rows))
        self._n_waiting += len(rows)
        if self._n_waiting >= ROWS_PER_GROUP:
            self._encode(self._n_waiting - self._n_waiting % ROWS_PER_GROUP)

    def close(self) -> None:
        if self._n_waiting:
            self._encode(self._n_waiting)
        self._close_file()

    def discard(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._stream.close()
        for path in self.paths:
            fsync_io.delete_file(path)

    def _encode(self, n_rows: int) -> None:
        gathered = pa.concat_tables(self._waiting)
        rest = gathered.slice(n_rows)
        self._waiting, self._n_waiting = [rest], len(rest)
        for start in range(0, n_rows, ROWS_PER_GROUP):
            writer = self._writer or self._open_file()
            writer.write_table(gathered.slice(start, min(ROWS_PER_GROUP, n_rows - start)))
            if self._stream.tell() >= MAX_FILE_BYTES:
                self._close_file()

    def _open_file(self) -> pq.ParquetWriter:
        self.paths.append(f"{self._folder}/{self._name}-{len(self.paths):05d}.parquet")
        self._stream = fsync_io.open_output(self.paths[-1])
        self._writer = pq.ParquetWriter(
            self._stream,
            self._arrow,
            compression="zstd",
            use_dictionary=[path for field in self._schema.fields for path in _dictionary_paths(field)],  # pyright: ignore[reportArgumentType] - names are accepted
            dictionary_pagesize_limit=DICTIONARY_BYTES,
            store_schema=False,  # store the types of the table, not the in-memory types of the writer
        )
        return self._writer

    def _close_file(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None
            self._stream.close()
            if not is_object(self.paths[-1]):
                fsync_io.sync(self.paths[-1])

    def _to_arrow(self, rows: pl.DataFrame) -> pa.Table:
        texts = rows.select(pl.col(pl.Categorical, pl.Enum).cast(pl.String))
        arrow = rows.with_columns(texts).to_arrow(compat_level=pl.CompatLevel.oldest())
        columns = [self._column(arrow, field, len(rows)) for field in self._arrow]
        return pa.Table.from_arrays(columns, schema=self._arrow)

    def _column(self, found: pa.Table, field: pa.Field, n_rows: int) -> pa.ChunkedArray | pa.Array:
        if field.name in self._constants:  # the partition's value is the same in every row
            value = pa.array([self._constants[field.name]])
            return pa.DictionaryArray.from_arrays(np.zeros(n_rows, dtype=np.int32), value)
        if field.name not in found.column_names:
            return pa.nulls(n_rows, field.type)
        return found[field.name].cast(field.type)


def _split_by_partition(rows: pl.DataFrame, by: list[str]) -> Iterator[tuple[tuple[Any, ...], pl.DataFrame]]:
    if rows.is_empty():
        return
    first = rows.select(by).row(0) if by else ()
    same = [pl.col(name).eq_missing(pl.lit(value)).all() for name, value in zip(by, first, strict=True)]
    if all(rows.select(same).row(0)) if by else True:
        yield first, rows
    else:
        yield from rows.partition_by(by, as_dict=True, maintain_order=True).items()


def _folder_name(name: str, value: object) -> str:
    return f"{name}={'null' if value is None else quote_plus(str(value))}"


def _dictionary_paths(field: NestedField) -> list[str]:
    """Parquet path of a field if a dictionary pays, as for strings that queries group by."""
    kind = field.field_type
    if isinstance(kind, ListType):
        return [] if str(kind.element_type) in NO_DICTIONARY else [f"{field.name}.list.element"]
    return [] if str(kind) in NO_DICTIONARY else [field.name]
