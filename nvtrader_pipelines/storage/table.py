"""What a table is: its columns with their types and meaning, and its partitions."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl
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

Row = dict[str, Any]
_TYPES: dict[str, IcebergType] = {
    "string": StringType(),
    "int": IntegerType(),
    "long": LongType(),
    "float": FloatType(),
    "double": DoubleType(),
    "boolean": BooleanType(),
    "date": DateType(),
    "timestamp": TimestamptzType(),
}
_POLARS: dict[str, pl.DataType] = {
    "string": pl.String(),
    "int": pl.Int32(),
    "long": pl.Int64(),
    "float": pl.Float32(),
    "double": pl.Float64(),
    "boolean": pl.Boolean(),
    "date": pl.Date(),
    "timestamp": pl.Datetime("us", "UTC"),
}
_LIST_ID = 1000  # element ids start here, clear of column ids


@dataclass(frozen=True)
class Column:
    """One column; the type is a name of `_TYPES` or `list<name>`."""

    name: str
    kind: str
    doc: str


@dataclass(frozen=True)
class Table:
    """An Iceberg table."""

    namespace: str
    table: str
    fields: tuple[Column, ...]
    partition_by: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """`namespace.table`."""
        return f"{self.namespace}.{self.table}"

    @property
    def columns(self) -> list[tuple[str, str, str]]:
        """Name, type and meaning of each column."""
        return [(column.name, column.kind, column.doc) for column in self.fields]

    def kind_of(self, column: str) -> str:
        """The type of a column.

        Raises:
            KeyError: if there is none of that name.
        """
        return {each.name: each.kind for each in self.fields}[column]

    def schema(self) -> Schema:
        """The Iceberg schema; every column may be null, what must not be is checked by the assets' checks."""
        return Schema(*(_nested(i, column) for i, column in enumerate(self.fields, start=1)))

    def partition_spec(self) -> PartitionSpec:
        """Identity partitions."""
        ids = {column.name: i for i, column in enumerate(self.fields, start=1)}
        return PartitionSpec(
            *(
                PartitionField(ids[name], _LIST_ID + i, IdentityTransform(), name)
                for i, name in enumerate(self.partition_by)
            )
        )


def polars_type(kind: str) -> pl.DataType:
    """The polars type of a column's type."""
    return _POLARS.get(kind) or pl.List(_POLARS[_element(kind)])


def _element(kind: str) -> str:
    return kind[len("list<") : -1]


def _nested(i: int, column: Column) -> NestedField:
    kind = _TYPES.get(column.kind) or ListType(
        element_id=_LIST_ID + i, element_type=_TYPES[_element(column.kind)], element_required=False
    )
    return NestedField(i, column.name, kind, required=False, doc=column.doc)


def columns_of(text: str) -> tuple[Column, ...]:
    """Columns from lines of `name type meaning`."""
    rows = (line.split(maxsplit=2) for line in text.strip().splitlines())
    return tuple(Column(name, kind, doc) for name, kind, doc in rows)


def to_frame(table: Table, rows: Sequence[Row]) -> pl.DataFrame:
    """The rows in the table's columns."""
    schema = {column.name: polars_type(column.kind) for column in table.fields}
    return pl.DataFrame(rows, schema=schema, orient="row")
