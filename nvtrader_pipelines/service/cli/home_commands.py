"""Commands of a home: create, show, check, query, halt, back up and serve it."""

import os
import shlex
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from nvtrader_pipelines.service.cli.command import command
from nvtrader_pipelines.service.cli.component_commands import components, schema
from nvtrader_pipelines.service.cli.exit_codes import FAILED, OK
from nvtrader_pipelines.service.cli.family_commands import family_app
from nvtrader_pipelines.service.cli.options import OneAccount, Reason
from nvtrader_pipelines.service.cli.output import Format, print_line, write_json, write_rows
from nvtrader_pipelines.service.due_notifications import notify
from nvtrader_pipelines.service.open_home import OpenHome, open_store
from nvtrader_pipelines.service.operations.home import NO_REASON, REDUCE, WholeHome, restore_home
from nvtrader_pipelines.storage.home import VARIABLE

Stop = Annotated[bool, typer.Option("--stop", help="Stop the UI of this home, and start none.")]


def sql(
    query: Annotated[str | None, typer.Argument(help="SQL query; without one, an interactive shell starts.")] = None,
    *,
    allow_files: Annotated[
        bool, typer.Option("--allow-files", help="Allow the query to read and write any file, and DuckDB's extensions.")
    ] = False,
    form: Format,
) -> None:
    """Answer a query, or start a shell."""
    from nvtrader_pipelines.service.cli.sql_shell import answer, run_shell

    store = open_store()
    if query is None:
        run_shell(store, form, allow_files=allow_files)
    else:
        write_rows(answer(store, query, allow_files=allow_files), form)


def halt(
    reason: Reason = NO_REASON,
    account: OneAccount = None,
    *,
    reduce: Annotated[bool, typer.Option("--reduce", help=REDUCE)] = False,
    as_json: bool,
) -> None:
    """Say at once that trading is stopped, then which orders were cancelled, also if the halt was not recorded."""
    from nvtrader_pipelines.service.cli.pages.home_pages import print_cancelled, print_switch

    family = WholeHome(OpenHome.find())
    on_halt = (lambda _: None) if as_json else partial(print_switch, family.store, account)
    document, failure = family.stop_trading(reason, on_halt, account=account, reduce=reduce)
    if as_json:
        write_json(document.model_dump(mode="json"))
    else:
        print_cancelled(document)
    if failure is not None:
        notify(family.store)
        raise failure
    family.publish()
    if document.still_open:
        raise typer.Exit(FAILED)


app = family_app(
    WholeHome,
    "home_pages",
    {"sql": sql, "components": components, "schema": schema, "halt": halt},
    {name: lambda rows: FAILED if any(rows["problem"]) else OK for name in ("doctor", "notify")},
)


@command(app.command, "nvtrader init my-home")
def init(folder: Annotated[Path, typer.Argument(help="New or empty folder.")], *, as_json: bool) -> None:
    """Create a home: a folder with the shipped experiments, for your data and for results."""
    from nvtrader_pipelines.service.documents.home_facts import CreatedHome
    from nvtrader_pipelines.storage.home import create_home

    home = create_home(folder)
    if as_json:
        write_json(CreatedHome(home=home.root).model_dump(mode="json"))
        return
    root = shlex.quote(str(home.root))
    enter = f"export {VARIABLE}={root}" if os.environ.get(VARIABLE) else f"cd {root}"
    for line in ("created; next:", f"  {enter}", "  nvtrader materialize", "  nvtrader ui"):
        print_line(line)


@command(app.command, "nvtrader ui", "nvtrader ui --port 3100")
def ui(
    *,
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port on 127.0.0.1.")] = 3000,
    stop: Stop = False,
) -> None:
    """Serve the Dagster UI on 127.0.0.1, with its schedules and sensors running; once per home."""
    from nvtrader_pipelines.desk.rebalancing import server_message
    from nvtrader_pipelines.orchestration.ui import serve
    from nvtrader_pipelines.research.automatic_training import training_message

    store = open_store()
    if stop:
        _stop(store.home.dagster)
    else:
        serve(store.home, port, f"{training_message(store)}\n{server_message(store)}")


@command(app.command, "nvtrader mlflow", "nvtrader mlflow --port 5100")
def mlflow(
    *,
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port on 127.0.0.1.")] = 5000,
    stop: Stop = False,
) -> None:
    """Serve MLflow's UI on 127.0.0.1: curves of trainings while they run; once per home."""
    from nvtrader_pipelines.orchestration.mlflow_ui import serve_mlflow

    home = open_store().home
    if stop:
        _stop(home.mlflow)
    else:
        serve_mlflow(home, port)


def _stop(folder: Path) -> None:
    """Stop the UI of a folder and print its URL."""
    from nvtrader_pipelines.orchestration.ui_processes import stop_servers

    url = stop_servers(folder)
    print_line(f"stopped the UI on {url}" if url else "no UI of this home runs")


@command(app.command, "nvtrader restore home.tar my-home")
def restore(
    file: Annotated[Path, typer.Argument(help="File that `nvtrader backup` wrote.")],
    folder: Annotated[Path, typer.Argument(help="New or empty folder for the home.")],
    *,
    as_json: bool,
) -> None:
    """Restore a backup as a home in a new folder, after every file was verified by its digest.

    Runs that were under way are interrupted in the restored home; the next command that needs them resumes them.
    """
    document = restore_home(file, folder, is_quiet=as_json)
    if as_json:
        write_json(document.model_dump(mode="json"))
        return
    print_line(f"{document.n_files:,} files of {document.backup_of} as of {document.created_at:%Y-%m-%d %H:%M:%S}Z")
    for part in document.outside:
        print_line(f"not in the backup: {part}", "yellow")
    print_line(f"export NVTRADER_HOME={shlex.quote(str(document.home))}")
