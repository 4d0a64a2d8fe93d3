"""Rows for people and programs: rich tables, CSV and JSON."""

import sys
from datetime import datetime
from enum import StrEnum

import polars as pl
from rich.console import Console
from rich.table import Table

WIDTH = 180


class Format(StrEnum):
    """How rows are written."""

    TABLE = "table"
    CSV = "csv"
    JSON = "json"


def wide_console() -> Console:
    """The terminal, or lines long enough for a table where the output goes elsewhere."""
    console = Console()
    return console if console.is_terminal else Console(width=WIDTH)


def cell(value: object) -> str:
    """One value, numbers to four digits."""
    if value is None:
        return ""
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%d %H:%M:%S}"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def write_rows(rows: pl.DataFrame, form: Format) -> None:
    """Write rows to standard output."""
    if form is Format.JSON:
        sys.stdout.write(rows.write_json() + "\n")
    elif form is Format.CSV:
        flat = [
            pl.col(name).cast(pl.List(pl.String)).list.join("|")
            for name, kind in rows.schema.items()
            if kind == pl.List
        ]
        sys.stdout.write(rows.with_columns(flat).write_csv())
    else:
        table = Table(box=None, header_style="bold")
        for name, kind in rows.schema.items():
            table.add_column(name, justify="right" if kind.is_numeric() else "left", overflow="fold")
        for row in rows.iter_rows():
            table.add_row(*(cell(value) for value in row))
        console = wide_console()
        console.print(table)
        console.print(f"{len(rows)} row{'' if len(rows) == 1 else 's'}", style="dim")
