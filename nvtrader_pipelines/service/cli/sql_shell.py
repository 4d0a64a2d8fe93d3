"""SQL over the published views, statement by statement: typed by a person, or read from a pipe."""

import sys
from collections.abc import Callable, Iterator

import polars as pl
from prompt_toolkit import PromptSession
from prompt_toolkit.history import FileHistory
from prompt_toolkit.lexers import PygmentsLexer
from pygments.lexers.sql import SqlLexer
from rich.console import Console

from nvtrader_pipelines.service.cli.tables import Format, write_rows
from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.views import query_views

HELP = "Statements end with ;   .tables lists the tables   .quit or Ctrl-D leaves"
TABLES = (
    "SELECT table_schema || '.' || table_name AS name FROM information_schema.tables "
    "WHERE table_schema NOT IN ('main', 'information_schema') ORDER BY 1"
)
LEAVE = {".quit", ".exit", "quit", "exit"}
NextLine = Callable[[str], str]  # a prompt to a line; EOFError at the end, KeyboardInterrupt to begin again


def shell(store: Store, form: Format) -> None:
    """Answer statements until the end of input; one from a pipe that is wrong ends it.

    Raises:
        StorageError: if nothing is published yet, or a statement from a pipe is wrong.
    """
    query_views(store, "SELECT 1")
    if not sys.stdin.isatty():
        for statement in statements(piped_line):
            write_rows(query_views(store, statement), form)
        return
    console = Console()
    console.print(HELP, style="dim")
    history = FileHistory(str(store.home.warehouse / ".sql_history"))
    session: PromptSession[str] = PromptSession(history=history, lexer=PygmentsLexer(SqlLexer))
    for statement in statements(session.prompt):
        answer(store, statement, form, console)


def piped_line(_prompt: str) -> str:
    """The next line of standard input."""
    line = sys.stdin.readline()
    if not line:
        raise EOFError
    return line


def statements(next_line: NextLine) -> Iterator[str]:
    """Whole statements; what the input ends with needs no semicolon."""
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
        if statement == ".tables":
            statement = TABLES + ";"
        if statement.endswith(";"):
            yield statement
            statement = ""
    if statement:
        yield statement


def answer(store: Store, statement: str, form: Format, console: Console) -> None:
    """Write a statement's rows, or its error as one line."""
    try:
        write_rows(query_views(store, statement), form)
    except (StorageError, pl.exceptions.PolarsError) as error:
        console.print(f"error: {error}", style="red", markup=False)
