"""Declaration of a table: columns, partitions, and the Iceberg schema derived from them."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import polars as pl
from polars.datatypes import DataTypeClass
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import (
    BooleanType,
    DateType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    NestedField,
    StringType,
    TimestamptzType,
)

from nvtrader_pipelines.components.columns import UTC_TIME, TableSchema

Row = dict[str, Any]
BY_RUN = ("spec_hash", "run_id")  # partitions of tables with rows per run
_ICEBERG_TYPES: dict[pl.DataType | DataTypeClass, IcebergType] = {
    pl.String: StringType(),
    pl.Int32: IntegerType(),
    pl.Int64: LongType(),
    pl.Float32: FloatType(),
    pl.Float64: DoubleType(),
    pl.Boolean: BooleanType(),
    pl.Date: DateType(),
    UTC_TIME: TimestamptzType(),
}
_LIST_ID = 1000  # ids of list elements start here, above all column ids


@dataclass(frozen=True)
class Table:
    """Iceberg table."""

    namespace: str
    table: str
    schema: TableSchema = field(hash=False)
    partition_by: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Full name, `namespace.table`."""
        return f"{self.namespace}.{self.table}"

    def iceberg_schema(self) -> Schema:
        """Iceberg schema. Every column may be null; asset checks find unwanted nulls."""
        return Schema(
            *(
                NestedField(i, column.name, _iceberg_type(column.dtype, i), required=False, doc=column.doc)
                for i, column in enumerate(self.schema.columns, start=1)
            )
        )

    def partition_spec(self) -> PartitionSpec:
        """Partition spec, with identity transforms."""
        ids = {name: i for i, name in enumerate(self.schema, start=1)}
        return PartitionSpec(
            *(
                PartitionField(ids[name], _LIST_ID + i, IdentityTransform(), name)
                for i, name in enumerate(self.partition_by)
            )
        )


def _iceberg_type(dtype: pl.DataType | DataTypeClass, column_id: int) -> IcebergType:
    if isinstance(dtype, pl.List):
        return ListType(_LIST_ID + column_id, _ICEBERG_TYPES[dtype.inner], element_required=False)
    return _ICEBERG_TYPES[dtype]


def to_frame(table: Table, rows: Sequence[Row]) -> pl.DataFrame:
    """Build a frame with the table's columns from rows."""
    return pl.DataFrame(rows, schema=table.schema, orient="row")
