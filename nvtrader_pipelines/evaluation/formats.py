"""Formats of numbers, intervals, times and words, of the terminal, the page and the report."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from nvtrader_pipelines.evaluation.short_samples import is_short
from nvtrader_pipelines.evaluation.timing_luck import opening_range
from nvtrader_pipelines.market.calendar import NEW_YORK

UNKNOWN = "\N{EN DASH}"  # in place of a figure that is unknown or not shown
MINUS, NO_BREAK = "\N{MINUS SIGN}", "\N{NO-BREAK SPACE}"
Row = Mapping[str, Any]


def sharpe_cells(row: Row) -> tuple[str, str]:
    """Format the Sharpe ratio and its interval: empty if unknown, a dash for a short sample."""
    return annual_cell(row, "sharpe", ".2f"), UNKNOWN if is_short(row) else format_interval(row, "sharpe", ".2f")


def difference_cells(row: Row) -> tuple[str, str]:
    """Format the difference to the best baseline's Sharpe ratio, and its interval."""
    name, form = "sharpe_difference", "+.2f"
    return annual_cell(row, name, form), UNKNOWN if is_short(row) else format_interval(row, name, form)


def openings_cell(row: Row) -> str:
    """Format the range of the Sharpe ratio over its openings; empty if unknown or there is only one."""
    spread = opening_range(row.get("openings") or ())
    return "" if spread is None or is_short(row) else f"{spread[0]:.2f} to {spread[1]:.2f}"


def annual_cell(row: Row, name: str, form: str) -> str:
    """Format an annualized figure: empty if unknown, a dash for a short sample."""
    return UNKNOWN if is_short(row) else "" if row[name] is None else f"{row[name]:{form}}"


def format_interval(row: Row, name: str, form: str) -> str:
    """Format the bounds of a figure, `<name>_low` and `<name>_high`; empty if there are none."""
    low, high = row.get(f"{name}_low"), row.get(f"{name}_high")
    return "" if None in (row[name], low, high) else f"[{low:{form}}, {high:{form}}]"


def format_estimate(row: Row, name: str = "sharpe", form: str = ".2f", unknown: str = UNKNOWN) -> str:
    """Format a figure with its interval, if it has one."""
    return unknown if row[name] is None else f"{row[name]:{form}} {format_interval(row, name, form)}".rstrip()


def format_number(value: float | None, form: str = ".2f") -> str:
    """Format a number; a dash if there is none."""
    return UNKNOWN if value is None else f"{value:{form}}".replace("-", MINUS)


def number(value: float | None, digits: int = 2, *, sign: bool = False) -> str:
    """Format a number of the page, without a sign where it rounds to zero; a dash if it is unknown."""
    plus = "+" if sign and value and round(value, digits) else ""
    return format_number(value, f"{plus}z,.{digits}f")


def percent(value: float | None, digits: int = 1, *, sign: bool = False) -> str:
    """Format a fraction in percent; a dash if it is unknown."""
    return UNKNOWN if value is None else f"{number(100.0 * value, digits, sign=sign)}{NO_BREAK}%"


def bounds(row: Row, name: str, digits: int = 2, *, sign: bool = False) -> str:
    """Format the 95 % interval of a figure of the page; empty if there is none."""
    low, high = row[f"{name}_low"], row[f"{name}_high"]
    return (
        "" if low is None or high is None else f"[{number(low, digits, sign=sign)}, {number(high, digits, sign=sign)}]"
    )


def moment(at: datetime | None) -> str:
    """Format a time as a date and a time of day in the exchange's zone; a dash if it is unknown."""
    return UNKNOWN if at is None else f"{at.astimezone(NEW_YORK.time_zone):%Y-%m-%d %H:%M}"


def duration(seconds: float | None) -> str:
    """Format a duration as m:ss, or h:mm:ss; a dash if it is unknown."""
    if seconds is None:
        return UNKNOWN
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}" if minutes >= 60 else f"{minutes}:{rest:02}"


def pluralize(n: int, noun: str) -> str:
    """Format a count with its noun, in the plural if needed."""
    return f"{n:,} {noun}" if n == 1 else f"{n:,} {noun}s"
