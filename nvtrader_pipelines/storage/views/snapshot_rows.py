"""Rows of a table at a snapshot that meet conditions, which are values and never SQL."""

import operator
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import reduce
from typing import Any

import polars as pl
from pydantic import TypeAdapter, ValidationError

from nvtrader_pipelines.components.explanation import format_value, suggest
from nvtrader_pipelines.storage.errors import NotFoundError
from nvtrader_pipelines.storage.iceberg.catalog import table_errors
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.table import Table
from nvtrader_pipelines.storage.tables import TABLES
from nvtrader_pipelines.storage.views.row_conditions import RowCondition

COMPARISONS = {name: getattr(operator, name) for name in ("eq", "ne", "lt", "le", "gt", "ge")}


def find_table(name: str) -> Table:
    """Find a table by its full name.

    Raises:
        NotFoundError: if there is none.
    """
    tables = {table.name: table for table in TABLES}
    if name not in tables:
        near = suggest(name, [*tables]) or ";"
        raise NotFoundError(f"there is no table {name!r}{near} `nvtrader tables` lists them")
    return tables[name]


def read_snapshot_rows(
    store: Store, table: Table, conditions: Sequence[RowCondition], limit: int, snapshot_id: int | None = None
) -> pl.DataFrame:
    """Read the first rows of a table that meet all conditions, currently or at a snapshot.

    Raises:
        StorageError: if the snapshot does not exist, or a file is missing or damaged.
        ValueError: if a condition names no column, or compares it with a value of another type.
    """
    expressions = [_expression(table, condition) for condition in conditions]
    keys = {
        condition.column: [_typed(condition.column, table.schema[condition.column], condition.value)]
        for condition in conditions
        if condition.op == "eq" and condition.column in table.partition_by
    }
    with table_errors(store.home, table):
        rows = store.tables.scan(table, keys, snapshot_id)  # pyright: ignore[reportArgumentType] - values of the columns
        return rows.filter(reduce(operator.and_, expressions, pl.lit(value=True))).head(limit).collect()


def _expression(table: Table, condition: RowCondition) -> pl.Expr:
    """Polars expression of a condition.

    Raises:
        ValueError: if it is not one on the table.
    """
    name, value = condition.column, condition.value
    if name not in table.schema:
        near = suggest(name, table.schema.names())
        raise ValueError(f"where: {table.name} has no column {name!r}{near}; it has {', '.join(table.schema.names())}")
    column, kind = pl.col(name), table.schema[name]
    if condition.op.endswith("null"):
        if value is not None:
            raise ValueError(f"where: {condition.op} takes no value, but has {format_value(value)}; leave it out")
        return column.is_null() if condition.op == "is_null" else column.is_not_null()
    if condition.op == "in":
        several = value if isinstance(value, tuple) else (value,)
        return column.is_in([_typed(name, kind, one) for one in several])
    return COMPARISONS[condition.op](column, pl.lit(_typed(name, kind, value), dtype=kind))


def _typed(name: str, kind: Any, value: object) -> Any:
    """Value as one of a column's type."""
    if kind.is_nested():
        raise ValueError(
            f"where: {name} holds lists, which only is_null and is_not_null can filter; use another column"
        )
    try:
        typed = TypeAdapter(kind.to_python()).validate_python(value)
        pl.Series([typed], dtype=kind)  # fails for a number that is too large
    except (ValidationError, pl.exceptions.PolarsError, TypeError, OverflowError) as error:
        raise ValueError(
            f"where: {name} must be compared with a value of type {kind}, but is compared with {format_value(value)}; "
            "give one, days and times as 2024-01-31"
        ) from error
    return typed.replace(tzinfo=typed.tzinfo or UTC).astimezone(UTC) if isinstance(typed, datetime) else typed
