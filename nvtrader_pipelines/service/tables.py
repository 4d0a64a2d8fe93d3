"""Rows for people and programs: rich tables, CSV and JSON."""

import sys
from enum import StrEnum

import polars as pl
from rich.console import Console
from rich.table import Table


class Format(StrEnum):
    """How rows are written."""

    TABLE = "table"
    CSV = "csv"
    JSON = "json"


def cell(value: object) -> str:
    """One value, numbers to four digits."""
    if value is None:
        return ""
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
        console = Console()
        console.print(table)
        console.print(f"{len(rows)} row{'' if len(rows) == 1 else 's'}", style="dim")
