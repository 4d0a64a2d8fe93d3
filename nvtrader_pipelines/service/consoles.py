"""Consoles of standard output."""

import os
from typing import Any

from rich.console import Console

WIDTH = 180  # of a pipe or file


def plain_console(**options: Any) -> Console:
    """Console that never reads data as markup or emoji."""
    return Console(markup=False, emoji=False, highlight=False, **options)


def warn(text: str) -> None:
    """Print a warning on standard error."""
    plain_console(stderr=True, soft_wrap=True).print(text, style="yellow")


def wide_console() -> Console:
    """Console of the terminal or of $COLUMNS; in a pipe or file, one wide enough for tables."""
    console, columns = plain_console(), os.environ.get("COLUMNS", "")
    if columns.isdigit() and int(columns):
        return plain_console(width=int(columns))
    return console if console.is_terminal else plain_console(width=WIDTH)
