"""Rows of a chart from anyone: numbers, short labels, and comparisons that several readings make."""

from collections.abc import Mapping, Sequence
from math import sqrt
from statistics import fmean, variance
from typing import Any

from nvtrader_pipelines.evaluation.sharpe.inference import expected_maximum_sharpe

Row = Mapping[str, Any]
MAX_VALUE = 1e9  # beyond which a number is no figure of a chart
MAX_LABEL = 40  # characters
LISTS = ("points", "curve", "trials", "runs", "rows")  # fields of a context that hold the rows
MIN_HALVES = 6  # values that are compared half by half
N_ERRORS = 2.0  # standard errors beyond which a difference is not noise


def rows_of_context(context: Row | Sequence[Any]) -> list[Row]:
    """Rows that a context holds, in one of its lists or as a list."""
    if isinstance(context, Mapping):
        context = next((value for name in LISTS if isinstance(value := context.get(name), list)), [])
    return [row for row in context if isinstance(row, dict)]


class TooFewRowsError(ValueError):
    """Chart without two rows to compare."""


def require_two(n_rows: int, kind: str, name: str) -> None:
    """Raise TooFewRowsError unless there are two rows to compare."""
    if n_rows < 2:
        raise TooFewRowsError(
            f"the context of a {kind} must hold at least 2 rows with a number {name!r} in one of its lists "
            f"{', '.join(LISTS)}, but holds {n_rows} that differ; send the rows that the chart draws"
        )


def number(row: Row, name: str) -> float | None:
    """Finite number of a row, to 12 decimals, so that no ratio of two overflows; None if it has none."""
    value = row.get(name)
    if not isinstance(value, int | float) or isinstance(value, bool) or not abs(value) <= MAX_VALUE:
        return None
    return round(float(value), 12)


def label(value: object) -> str:
    """Short printable text of a name or a number; empty if it is neither."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return ""
    text = value if isinstance(value, str) else f"{value:.6g}" if isinstance(value, float) or value < 10**9 else ""
    return "".join(letter for letter in text if letter.isprintable()).strip()[:MAX_LABEL]


def half_difference(values: Sequence[float]) -> tuple[float, float]:
    """Mean of the later half less that of the earlier half, and its standard error."""
    earlier, later = values[: len(values) // 2], values[len(values) // 2 :]
    error = sqrt(variance(earlier) / len(earlier) + variance(later) / len(later))
    return fmean(later) - fmean(earlier), error


def luck_of_best(values: Sequence[float]) -> float:
    """Best that as many draws from a normal distribution with the mean and spread of the values have on average."""
    return fmean(values) + expected_maximum_sharpe(len(values), variance(values))


def format_bounds(low: float, high: float) -> str:
    """Format a 95 % interval of Sharpe ratios, with its side of zero."""
    side = "includes zero" if low <= 0.0 <= high else "above zero" if low > 0.0 else "below zero"
    return f"95 % interval {low:.2f} to {high:.2f}, {side}"


def format_times(ratio: float) -> str:
    """Format how many times as long a sample must be."""
    return f"{ratio:.1f} times as long" if ratio <= 10.0 else "more than 10 times as long"
