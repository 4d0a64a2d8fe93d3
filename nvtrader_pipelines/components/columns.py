"""Columns of tables: name, dtype and meaning, declared once; every schema of a table derives from them."""

from dataclasses import dataclass
from typing import Self

import polars as pl
from polars.datatypes import DataTypeClass

UTC_TIME = pl.Datetime("us", "UTC")


@dataclass(frozen=True)
class Column:
    """One column."""

    name: str
    dtype: pl.DataType | DataTypeClass
    doc: str  # meaning and unit


class TableSchema(pl.Schema):
    """A polars schema that also holds the meaning of its columns."""

    def __init__(self, *parts: "Column | TableSchema") -> None:
        """Join columns and the columns of other schemas, in order."""
        each = (part.columns if isinstance(part, TableSchema) else (part,) for part in parts)
        self.columns: tuple[Column, ...] = tuple(column for columns in each for column in columns)
        super().__init__([(column.name, column.dtype) for column in self.columns])

    def only(self, *names: str) -> Self:
        """Return the schema of some columns, in the order of the names.

        Raises:
            KeyError: if a column does not exist.
        """
        by_name = {column.name: column for column in self.columns}
        return type(self)(*(by_name[name] for name in names))

    def without(self, *names: str) -> Self:
        """Return the schema of the other columns.

        Raises:
            KeyError: if a column does not exist.
        """
        left_out = self.only(*names)
        return type(self)(*(column for column in self.columns if column.name not in left_out))


def interval_bounds(name: str, meaning: str) -> TableSchema:
    """Columns `name_low` and `name_high` of the 95 % interval of a statistic."""
    shares = {"low": "2.5 %", "high": "97.5 %"}
    return TableSchema(*(Column(f"{name}_{end}", pl.Float64, f"{share} {meaning}") for end, share in shares.items()))
