"""SQL shell over the published views; statements are typed or read from a pipe."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import polars as pl
from rich.console import Console

from nvtrader_pipelines.service.cli.output import Format, write_rows
from nvtrader_pipelines.service.consoles import plain_console
from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.views.queries import query_views

HELP = "Statements end with ;   SHOW TABLES lists the tables   .quit or Ctrl-D leaves"
LISTINGS = {".tables", "show tables"}  # DuckDB's own statement shows no schema but main
TABLES = (
    "SELECT table_schema || '.' || table_name AS name FROM information_schema.tables "
    "WHERE table_schema NOT IN ('main', 'information_schema') ORDER BY 1"
)
LEAVE = {".quit", ".exit", "quit", "exit"}
NextLine = Callable[[str], str]  # prompt to line; EOFError ends the input, KeyboardInterrupt the statement


def run_shell(store: Store, form: Format, *, allow_files: bool = False) -> None:
    """Run statements until the end of input; a failing statement from a pipe ends the shell.

    Raises:
        StorageError: if no view is published yet, or a statement from a pipe fails.
    """
    query_views(store, "SELECT 1")
    if not sys.stdin.isatty():
        for statement in statements(read_piped_line):
            write_rows(answer(store, statement, allow_files=allow_files), form)
        return
    console = plain_console()
    console.print(HELP, style="dim")
    for statement in statements(_prompt(store.home.warehouse / ".sql_history")):
        print_answer(store, statement, form, console, allow_files=allow_files)


def _prompt(history: Path) -> NextLine:
    """Prompt of a terminal with colors, and with the history of earlier shells."""
    from prompt_toolkit import PromptSession  # takes a fifth of a single query's time
    from prompt_toolkit.history import FileHistory
    from prompt_toolkit.lexers import PygmentsLexer
    from pygments.lexers.sql import SqlLexer

    session: PromptSession[str] = PromptSession(history=FileHistory(str(history)), lexer=PygmentsLexer(SqlLexer))
    return session.prompt


def read_piped_line(_prompt: str) -> str:
    """Read the next line of standard input."""
    line = sys.stdin.readline()
    if not line:
        raise EOFError
    return line


def statements(next_line: NextLine) -> Iterator[str]:
    """Yield whole statements; the last one needs no semicolon."""
    statement = ""
    while True:
        try:
            line = next_line("     ...> " if statement else "nvtrader> ")
        except KeyboardInterrupt:
            statement = ""
            continue
        except EOFError:
            break
        if not statement and line.strip() in LEAVE:
            return
        statement = f"{statement}\n{line}".strip()
        if statement.endswith(";") or statement in LISTINGS:
            yield statement
            statement = ""
    if statement:
        yield statement


def answer(store: Store, statement: str, *, allow_files: bool = False) -> pl.DataFrame:
    """Run a statement over the views; `SHOW TABLES` lists the tables of every schema.

    Raises:
        StorageError: if nothing is published yet, the statement is empty or invalid, or files are missing.
    """
    if not statement.strip("; \n\t"):
        raise StorageError('a query must hold a statement, but it is empty; for example: nvtrader sql "SHOW TABLES"')
    listing = statement.rstrip("; \n").lower() in LISTINGS
    return query_views(store, TABLES if listing else statement, allow_files=allow_files)


def print_answer(store: Store, statement: str, form: Format, console: Console, *, allow_files: bool) -> None:
    """Print the rows of a statement, or its error in one line."""
    try:
        write_rows(answer(store, statement, allow_files=allow_files), form)
    except (StorageError, pl.exceptions.PolarsError) as error:
        console.print(f"error: {error}", style="red")
