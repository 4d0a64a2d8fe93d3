"""Output of commands: tables, lines, CSV and JSON."""

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from nvtrader_pipelines.service.cli.table_layout import PADDING, CellTable
from nvtrader_pipelines.service.consoles import wide_console

if TYPE_CHECKING:
    import polars as pl

    from nvtrader_pipelines.components.document import Document

LARGE = 1e4  # numbers from here on are written without decimals
MAX_ROWS = 500  # of a table; laying out more takes seconds
MAX_NAMES = 5  # of rows with an equal sentence


class Format(StrEnum):
    """Output format of rows."""

    TABLE = "table"
    CSV = "csv"
    JSON = "json"


class PageFormat(StrEnum):
    """Output format of a document, which has no rows for CSV."""

    TABLE = "table"
    JSON = "json"


def format_cell(value: object) -> str:
    """Format a value of a table; numbers have four digits, or no decimals from 10,000 on."""
    if value is None:
        return ""
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%d %H:%M:%S}"
    if isinstance(value, float):
        return f"{value:.4g}" if abs(value) < LARGE else f"{value:,.0f}"
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return "; ".join(value)
    return str(value)


def flatten_column(values: "pl.Series") -> "pl.Series":
    """Flatten a column for CSV: lists are joined by |, deeper nesting is written as text."""
    import polars as pl

    if not values.dtype.is_nested():
        return values
    texts = [None if value is None else _join(value) for value in values.to_list()]
    return pl.Series(values.name, texts, dtype=pl.String)


def _join(value: object) -> str:
    return "|".join(str(part) for part in value) if isinstance(value, list) else str(value)


def write_json(document: object) -> None:
    """Write a document to standard output as JSON."""
    sys.stdout.write(json.dumps(document, indent=1) + "\n")


def write_rows(
    rows: "pl.DataFrame", form: Format, sentences: Sequence[str] = (), model: "type[Document] | None" = None
) -> None:
    """Write rows to standard output, in JSON as the documents of their model if they have one.

    Columns of `sentences` follow a table instead of being part.
    """
    if form is Format.JSON and model is not None:
        from nvtrader_pipelines.components.document import rows_of

        write_json([row.model_dump(mode="json") for row in rows_of(model, rows)])
    elif form is Format.JSON:
        sys.stdout.write(rows.write_json() + "\n")
    elif form is Format.CSV:
        sys.stdout.write(rows.select(flatten_column(rows[name]) for name in rows.columns).write_csv())
    else:
        shown, table = rows.head(MAX_ROWS), rows.head(MAX_ROWS).drop(sentences)
        numeric = [i for i, kind in enumerate(table.dtypes) if kind.is_numeric()]
        cells = [[format_cell(value) for value in row] for row in table.iter_rows()]
        print_table(CellTable(table.columns, cells, numeric))
        count = f"{len(rows):,} row{'' if len(rows) == 1 else 's'}"
        more = f"… {len(rows) - MAX_ROWS:,} more; --format csv writes all of the {count}"
        wide_console().print(more if len(rows) > MAX_ROWS else count, style="dim")
        for column in sentences:
            print_sentences(zip(shown.to_series(0).to_list(), shown[column].to_list(), strict=True))


def print_sentences(sentences: Iterable[tuple[object, object]], console: Console | None = None) -> None:
    """Print lines `<names>: <sentence>`, whole at every width and each sentence once.

    Args:
        sentences: name of a row, with its sentence or list of sentences; empty ones are left out.
        console: console; default: of standard output.
    """
    names: dict[str, list[str]] = {}
    for name, value in sentences:
        for sentence in value if isinstance(value, list) else [value]:
            if sentence:
                names.setdefault(str(sentence), []).append(format_cell(name))
    for sentence, rows in names.items():
        more = f" and {len(rows) - MAX_NAMES} more" if len(rows) > MAX_NAMES else ""
        named = f"{', '.join(rows[:MAX_NAMES])}{more}"
        (console or wide_console()).print(f"{named}: {sentence}", style="yellow", soft_wrap=True)


def print_differences(fields: "pl.DataFrame", left: str, right: str) -> None:
    """Print a line per field in which two documents differ, whole at every width."""
    print_line(f"{left} and {right} are the same" if fields.is_empty() else f"{left} -> {right}", "bold")
    for row in fields.iter_rows(named=True):
        before, after = ("absent" if row[side] is None else row[side] for side in ("left", "right"))
        print_line(f"  {row['field']}: {before} -> {after}")


def print_table(table: CellTable, title: str = "", console: Console | None = None) -> None:
    """Print the leading columns that fit the console, and name those that do not."""
    console = console or wide_console()
    widths = table.fit_widths(console.width)
    layout = Table(box=None, header_style="bold", width=sum(widths) + PADDING * len(widths))
    for i, width in enumerate(widths):
        justify = "right" if i in table.numeric else "left"
        layout.add_column(table.columns[i], width=width, justify=justify, overflow="fold", vertical="top")
    for i, row in enumerate(table.rows):
        layout.add_row(*row[: len(widths)], style="bold" if i in table.bold else None)
    if title:
        console.print(title, style="bold")
    console.print(layout)
    if left_out := table.columns[len(widths) :]:
        console.print(f"left out: {', '.join(left_out)}; a wider terminal or --json shows them", style="dim")


def print_part(title: str, rows: "pl.DataFrame", if_empty: str, sentences: Sequence[str] = ()) -> None:
    """Print a titled table, its `sentences` columns below, or a message if it is empty."""
    print_title(title)
    if rows.is_empty():
        wide_console().print(if_empty, style="dim")
    else:
        write_rows(rows, Format.TABLE, sentences)


def print_title(text: str) -> None:
    """Print the title of a part."""
    wide_console().print(f"\n{text}", style="bold")


def print_line(text: str, style: str | None = None) -> None:
    """Print a line without wrapping."""
    wide_console().print(text, style=style, soft_wrap=True)


def print_lines(lines: Mapping[str, str], width: int = 16) -> None:
    """Print names and values in two columns; empty values are left out."""
    for name, value in lines.items():
        if value:
            print_line(f"{name:<{width}} {value}")


def print_facts(document: "Document") -> None:
    """Print a document: its values as lines, its rows as tables."""
    from nvtrader_pipelines.components.document import row_types

    facts = {name: getattr(document, name) for name in type(document).model_fields}
    tables = row_types(type(document))
    print_lines({name.replace("_", " "): format_cell(value) for name, value in facts.items() if name not in tables})
    for name in [table for table in tables if facts[table]]:
        print_part(name.replace("_", " "), document.frame(name), "")
