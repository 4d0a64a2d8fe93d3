"""`nvtrader research`: search spaces and sessions of AutoResearch."""

from typing import Annotated, Any

import typer

from nvtrader_pipelines.service.cli.exit_codes import INTERRUPTED, OK
from nvtrader_pipelines.service.cli.family_commands import family_app
from nvtrader_pipelines.service.cli.output import Format, write_json, write_rows
from nvtrader_pipelines.service.consoles import warn
from nvtrader_pipelines.service.open_home import OpenHome
from nvtrader_pipelines.service.operations.searches import SESSION, Searches
from nvtrader_pipelines.storage.errors import NotFoundError
from nvtrader_pipelines.storage.research_files import NO_SESSION


def journal(session_id: Annotated[str | None, typer.Argument(help=SESSION)] = None, *, form: Format) -> None:
    """Write a journal; in CSV, knobs and adjustments are text."""
    from nvtrader_pipelines.service.cli.pages.search_pages import journal_table, print_journal

    searches = Searches(OpenHome.find())
    rows = searches.journal(session_id)
    if form is Format.JSON:
        write_json([row.model_dump(mode="json") for row in rows])
    elif form is Format.CSV:
        write_rows(journal_table(rows), form)
    else:
        print_journal(rows)
    for note in searches.notes:
        warn(note)


def exit_code(session: Any) -> int:
    """Exit code of a session: interrupted if it was run and came to no verdict.

    Raises:
        NotFoundError: if there is none.
    """
    if session is None:
        raise NotFoundError(NO_SESSION)
    return INTERRUPTED if session.summary.state == "stopped" else OK


app = family_app(
    Searches,
    "search_pages",
    {"journal": journal},
    {"start": exit_code, "resume": exit_code, "status": lambda session: exit_code(session) and OK},
)
