"""Formats of the report's cells."""

from collections.abc import Mapping
from typing import Any

from nvtrader_pipelines.service.account_cells import UNKNOWN

MINUS = "\u2212"


def ratio_cells(row: Mapping[str, Any]) -> tuple[str, str]:
    """Cells of an information ratio: the ratio with its interval, and the deflated probability."""
    return format_interval(row, sign=True), format_number(row["deflated_sharpe"])


def format_interval(row: Mapping[str, Any], name: str = "sharpe", *, sign: bool = False) -> str:
    """Format a figure with its interval; a dash if there is none."""
    form = "+.2f" if sign else ".2f"
    point, low, high = row[name], row[f"{name}_low"], row[f"{name}_high"]
    if point is None:
        return UNKNOWN
    bounds = "" if low is None or high is None else f" [{low:{form}}, {high:{form}}]"
    return f"{point:{form}}{bounds}".replace("-", MINUS)


def format_number(value: float | None, form: str = ".2f") -> str:
    """Format a number; a dash if there is none."""
    return UNKNOWN if value is None else f"{value:{form}}".replace("-", MINUS)


def format_signed(value: float | None, form: str = ".2f") -> str:
    """Format a number with its sign; a dash if there is none."""
    return format_number(value, f"+{form}")


def format_market_model(row: Mapping[str, Any]) -> str:
    """Format the alpha per year and the beta on a reference."""
    return f"{format_signed(row['alpha_per_year'], '.1%')}, {format_number(row['beta'])}"


def pluralize(n: int, noun: str) -> str:
    """Format a count with its noun, in the plural if needed."""
    return f"{n:,} {noun}" if n == 1 else f"{n:,} {noun}s"


def to_words(name: str) -> str:
    """Replace the underscores of an identifier by spaces."""
    return name.replace("_", " ")
