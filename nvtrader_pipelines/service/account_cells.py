"""Cells of an account's figures, in the tables of the command line and of the report."""

from collections.abc import Mapping
from typing import Any

from nvtrader_pipelines.evaluation.timing_luck import opening_range
from nvtrader_pipelines.service.documents.short_samples import is_short

UNKNOWN = "\u2013"  # dash in place of a figure that is unknown or not shown


def sharpe_cells(row: Mapping[str, Any]) -> tuple[str, str]:
    """Format the Sharpe ratio and its interval: empty if unknown, a dash for a short sample."""
    return annual_cell(row, "sharpe", ".2f"), UNKNOWN if is_short(row) else format_interval(row, "sharpe", ".2f")


def openings_cell(row: Mapping[str, Any]) -> str:
    """Format the range of the Sharpe ratio over its openings; empty if unknown or there is only one."""
    spread = opening_range(row.get("openings") or ())
    return "" if spread is None or is_short(row) else f"{spread[0]:.2f} to {spread[1]:.2f}"


def difference_cells(row: Mapping[str, Any]) -> tuple[str, str]:
    """Format the difference to the best baseline's Sharpe ratio, and its interval."""
    name, form = "sharpe_difference", "+.2f"
    return annual_cell(row, name, form), UNKNOWN if is_short(row) else format_interval(row, name, form)


def annual_cell(row: Mapping[str, Any], name: str, form: str) -> str:
    """Format an annualized figure: empty if unknown, a dash for a short sample."""
    return UNKNOWN if is_short(row) else format_figure(row, name, form)


def format_figure(row: Mapping[str, Any], name: str, form: str) -> str:
    """Format a figure; empty if there is none."""
    return "" if row[name] is None else f"{row[name]:{form}}"


def format_interval(row: Mapping[str, Any], name: str, form: str) -> str:
    """Format the bounds of a figure, `<name>_low` and `<name>_high`; empty if there are none."""
    if row[name] is None:
        return ""
    return f"[{row[f'{name}_low']:{form}}, {row[f'{name}_high']:{form}}]"
