"""Formats of numbers, times and ids on the page."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from nvtrader_pipelines.market.calendar import NEW_YORK
from nvtrader_pipelines.service.account_cells import UNKNOWN
from nvtrader_pipelines.service.report.cell_formats import MINUS

NO_BREAK = "\N{NO-BREAK SPACE}"


def number(value: float | None, digits: int = 2, *, sign: bool = False) -> str:
    """Format a number; a dash if it is unknown."""
    if value is None:
        return UNKNOWN
    rounded = round(value, digits) or 0.0  # no sign on what rounds to zero
    return f"{rounded:{'+' if sign and rounded else ''},.{digits}f}".replace("-", MINUS)


def percent(value: float | None, digits: int = 1, *, sign: bool = False) -> str:
    """Format a fraction in percent; a dash if it is unknown."""
    return UNKNOWN if value is None else f"{number(100.0 * value, digits, sign=sign)}{NO_BREAK}%"


def bounds(row: Mapping[str, Any], name: str, *, sign: bool = False) -> str:
    """Format the 95 % interval of a figure; empty if there is none."""
    low, high = row[f"{name}_low"], row[f"{name}_high"]
    return "" if low is None or high is None else f"[{number(low, sign=sign)}, {number(high, sign=sign)}]"


def moment(at: datetime | None) -> str:
    """Format a time as a date and a time of day in the exchange's zone; a dash if it is unknown."""
    return UNKNOWN if at is None else f"{at.astimezone(NEW_YORK.time_zone):%Y-%m-%d %H:%M}"


def duration(seconds: float | None) -> str:
    """Format a duration as m:ss, or h:mm:ss; a dash if it is unknown."""
    if seconds is None:
        return UNKNOWN
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}" if minutes >= 60 else f"{minutes}:{rest:02}"


def position(value: float, low: float, high: float, width: float) -> float:
    """Place of a value on an axis of `width` pixels from `low` to `high`, kept within it."""
    return round(width * min(1.0, max(0.0, (value - low) / (high - low))), 1)
