"""`nvtrader research`: search spaces and sessions of AutoResearch."""

from pathlib import Path
from typing import Annotated

import typer

from nvtrader_pipelines.research.knobs import SearchMode
from nvtrader_pipelines.service.cli import search_commands
from nvtrader_pipelines.service.cli.command import command
from nvtrader_pipelines.service.cli.options import with_examples
from nvtrader_pipelines.service.cli.output import Format, print_line, write_json, write_rows
from nvtrader_pipelines.service.cli.search_commands import AnySession
from nvtrader_pipelines.service.open_home import require_home
from nvtrader_pipelines.service.output_paths import require_file_path
from nvtrader_pipelines.storage.store import Store

app = typer.Typer(
    name="research",
    help="AutoResearch: search over the settings of an experiment.",
    epilog=with_examples("nvtrader research start --budget 20", "nvtrader research status", "nvtrader research report"),
    no_args_is_help=True,
)
app.add_typer(search_commands.app)


@command(
    app.command,
    "nvtrader research space",
    "nvtrader research space --mode unified --like ppo-growth",
    "nvtrader research space --json-schema",
    name="space",
)
def show_space(
    *,
    mode: Annotated[SearchMode, typer.Option("--mode", help="Groups of knobs to vary.")] = SearchMode.PPO_ONLY,
    like: Annotated[
        str | None, typer.Option("--like", help="Experiment to search around; default: one of the mode's own.")
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option(
            "--space", help="YAML file of knobs: a dotted path to {low, high, log} each; default: the mode's."
        ),
    ] = None,
    json_schema: Annotated[
        bool, typer.Option("--json-schema", help="Write the JSON Schema of a delta instead.")
    ] = False,
    as_json: bool,
) -> None:
    """Show the knobs that a search varies, with bounds and the base's values."""
    import polars as pl

    from nvtrader_pipelines.service.documents.space_facts import find_space, space_document

    space = find_space(mode, like, file)
    if json_schema:
        write_json(space.json_schema)
        return
    document = space_document(space)
    if as_json:
        write_json(document.model_dump(mode="json"))
        return
    write_rows(pl.DataFrame([knob.model_dump() for knob in document.knobs]), Format.TABLE)
    for line in document.lines:
        print_line(line)


@command(app.command, "nvtrader research status", "nvtrader research status 2026 --json")
def status(session: AnySession = None, *, as_json: bool) -> None:
    """Show the state of a session: best trial so far, luck bar, and time left."""
    from nvtrader_pipelines.service.cli.pages.search_pages import print_session
    from nvtrader_pipelines.service.documents.search_facts import session_document

    document = session_document(Store(require_home()), session)
    if as_json:
        write_json(document.model_dump(mode="json"))
    else:
        print_session(document)


@command(app.command, "nvtrader research sessions", "nvtrader research sessions --format csv")
def sessions(*, form: Format) -> None:
    """List sessions, newest first, with their best Sharpe ratios."""
    from nvtrader_pipelines.service.cli.pages.search_pages import print_sessions, session_rows
    from nvtrader_pipelines.service.documents.search_facts import SessionSummary, list_sessions

    summaries, problems = list_sessions(Store(require_home()))
    if form is Format.TABLE:
        print_sessions(summaries, problems)
    else:
        for problem in problems:
            typer.secho(problem, err=True, fg="yellow")
        write_rows(session_rows(summaries), form, model=SessionSummary)


@command(app.command, "nvtrader research journal", "nvtrader research journal 2026 --format csv")
def journal(session: AnySession = None, *, form: Format) -> None:
    """List proposals of a session with their results, reruns and the verdict."""
    from nvtrader_pipelines.research.recorded_session import read_session
    from nvtrader_pipelines.service.cli.pages.search_pages import journal_table, print_journal
    from nvtrader_pipelines.service.documents.search_facts import journal_rows, session_notes

    recorded = read_session(Store(require_home()).searches.find(session))
    rows = journal_rows(recorded)
    if form is Format.TABLE:
        print_journal(rows, session_notes(recorded))
    elif form is Format.JSON:
        write_json([row.model_dump(mode="json") for row in rows])
    else:
        write_rows(journal_table(rows), form)


@command(app.command, "nvtrader research report", "nvtrader research report 2026 --json")
def report(session: AnySession = None, *, as_json: bool) -> None:
    """Print the report of a session as Markdown, and write it with its picture."""
    from nvtrader_pipelines.service.documents.search_facts import report_document

    document = report_document(Store(require_home()), session)
    if as_json:
        write_json(document.model_dump(mode="json"))
        return
    print_line(str(document.path), "dim")
    print_line(document.markdown)


@command(app.command, "nvtrader research stop", "nvtrader research stop 2026")
def stop(session: AnySession = None, *, as_json: bool) -> None:
    """End a running session after its current trials; `resume` continues it."""
    from nvtrader_pipelines.research.recorded_session import request_stop
    from nvtrader_pipelines.service.documents.search_facts import StoppingSession

    folder = Store(require_home()).searches.find(session)
    request_stop(folder)
    if as_json:
        document = StoppingSession(session_id=folder.session_id, stop_request=folder.stop_request)
        write_json(document.model_dump(mode="json"))
    else:
        print_line(f"session {folder.session_id} ends after its current trials: nvtrader research status")


@command(app.command, "nvtrader research export --optuna study.db", "nvtrader research export 2026 --optuna study.db")
def export(
    session: AnySession = None,
    *,
    optuna: Annotated[Path, typer.Option("--optuna", help="New SQLite file for Optuna's dashboard and plots.")],
    as_json: bool,
) -> None:
    """Write the trials of a session as a study of Optuna."""
    from nvtrader_pipelines.research.recorded_session import read_session
    from nvtrader_pipelines.research.study import export_study
    from nvtrader_pipelines.service.documents.search_facts import ExportedSession

    path = require_file_path(optuna.expanduser())
    recorded = read_session(Store(require_home()).searches.find(session))
    export_study(recorded.lines, recorded.session.spec.space().knobs, path)
    if as_json:
        write_json(ExportedSession(session_id=recorded.session.session_id, file=path).model_dump(mode="json"))
    else:
        print_line(f"wrote {path}: optuna-dashboard sqlite:///{path}")
