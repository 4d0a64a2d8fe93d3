"""An interactive SQL shell over the published views."""

from prompt_toolkit import PromptSession
from prompt_toolkit.history import FileHistory
from prompt_toolkit.lexers import PygmentsLexer
from pygments.lexers.sql import SqlLexer
from rich.console import Console

from nvtrader_pipelines.service.tables import Format, write_rows
from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.views import query_views

HELP = "Statements end with ;   .tables lists the tables   .quit or Ctrl-D leaves"
TABLES = (
    "SELECT table_schema || '.' || table_name AS name FROM information_schema.tables "
    "WHERE table_schema NOT IN ('main', 'information_schema') ORDER BY 1"
)


def shell(home: Home, form: Format) -> None:
    """Read statements and write their rows until the end of input."""
    console = Console()
    console.print(HELP, style="dim")
    history = FileHistory(str(home.warehouse / ".sql_history"))
    session: PromptSession[str] = PromptSession(history=history, lexer=PygmentsLexer(SqlLexer))
    statement = ""
    while True:
        try:
            line = session.prompt("nvtrader> " if not statement else "     ...> ")
        except KeyboardInterrupt:
            statement = ""
            continue
        except EOFError:
            return
        if not statement and line.strip() in {".quit", ".exit", "quit", "exit"}:
            return
        statement = f"{statement}\n{line}".strip()
        if statement == ".tables":
            statement = TABLES + ";"
        if statement.endswith(";"):
            answer(home, statement, form, console)
            statement = ""


def answer(home: Home, statement: str, form: Format, console: Console) -> None:
    """Write a statement's rows, or its error as one line."""
    try:
        write_rows(query_views(home, statement), form)
    except StorageError as error:
        console.print(f"error: {error}", style="red", markup=False)
