"""Options shared by the commands."""

from datetime import date, datetime
from typing import Annotated

import typer

EPILOG = (
    "Exit codes: 0 done, 1 the pipeline failed, the gate rejected a policy, an account's holdings differ from the "
    "expected ones, orders may still be open after halt, or doctor found a problem, 2 wrong usage, 3 bad input or a "
    "missing file, 130 interrupted."
)
Reason = Annotated[str, typer.Option("--reason", help="Why; recorded in the audit.")]
OneAccount = Annotated[str | None, typer.Option("--account", help="Account of data/accounts; default: all accounts.")]
Account = Annotated[str, typer.Option("--account", help="Account of data/accounts; `paper` needs no file.")]


def with_examples(*commands: str) -> str:
    """Return the end of a command's help: examples, then the exit codes."""
    return "\n".join(("Examples:", *(f"  {command}" for command in commands), "", EPILOG))


def parse_symbols(text: str | None) -> tuple[str, ...] | None:
    """Symbols of a list with commas or blanks; None for all."""
    return None if text is None else tuple(text.replace(",", " ").split())


def parse_day(text: str) -> date:
    """Parse the day of an option.

    Raises:
        typer.BadParameter: if the text is not a day of the calendar.
    """
    try:
        return datetime.strptime(text, "%Y-%m-%d").date()  # noqa: DTZ007 - a day has no time zone
    except ValueError as error:
        raise typer.BadParameter(f"must be a date such as 2017-02-28, found {text!r}") from error
