"""Conditions on the rows of a table: values, never SQL."""

from typing import Literal

from nvtrader_pipelines.components.component import Component


class RowCondition(Component):
    """Condition on a column; null meets none but `is_null`."""

    column: str
    op: Literal["eq", "ne", "lt", "le", "gt", "ge", "in", "is_null", "is_not_null"] = "eq"
    value: str | int | float | bool | tuple[str | int | float, ...] | None = None  # days and times as ISO 8601
