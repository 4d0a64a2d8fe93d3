"""The `nvtrader` command."""

import atexit
import json
import os
import sys
from dataclasses import asdict
from typing import Annotated

import polars as pl
import typer

from nvtrader_pipelines.service.doctor import diagnose
from nvtrader_pipelines.service.errors import FAILED, one_sentence
from nvtrader_pipelines.service.tables import Format, wide_console, write_rows
from nvtrader_pipelines.storage.home import Home

EPILOG = (
    "Exit codes: 0 done, 1 the pipeline failed or doctor found something missing, 2 wrong usage, "
    "3 bad input or a missing file, 130 interrupted."
)
app = typer.Typer(
    name="nvtrader",
    help="Market prices to portfolio policies that can be trusted.",
    epilog=EPILOG,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Show the trace of an error.")]
Form = Annotated[Format, typer.Option("--format", "-f", help="table, csv or json.")]
AsJson = Annotated[bool, typer.Option("--json", help="Write JSON.")]


def found_home() -> Home:
    """The home folder.

    Raises:
        ValueError: if the folder that was named is not there.
    """
    home = Home.find()
    if not home.root.is_dir():
        raise ValueError(f"NVTRADER_HOME names {home.root}, which is no folder; create it or name another")
    return home


@app.command(epilog=EPILOG)
def run(
    experiment: Annotated[
        list[str] | None, typer.Argument(help="Names to run; all of data/experiments if none.")
    ] = None,
    *,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Materialise the whole graph, recomputing only what changed, and print the results."""
    from nvtrader_pipelines.orchestration.pipeline import run_pipeline
    from nvtrader_pipelines.service.summary import print_summary, summary

    with one_sentence(verbose=verbose):
        home = found_home()
        run_pipeline(home, experiment or [], quiet=as_json)
        if as_json:
            sys.stdout.write(summary(home, experiment or []).write_json() + "\n")
        else:
            print_summary(home, experiment or [], wide_console())


@app.command(epilog=EPILOG)
def ui(
    *,
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port on 127.0.0.1.")] = 3000,
    verbose: Verbose = False,
) -> None:
    """Serve the Dagster UI on 127.0.0.1, with its schedules and sensors running."""
    from nvtrader_pipelines.orchestration.ui import serve

    with one_sentence(verbose=verbose):
        raise typer.Exit(serve(found_home(), port))


@app.command(epilog=EPILOG)
def sql(
    query: Annotated[str | None, typer.Argument(help="A query; without one, an interactive shell.")] = None,
    *,
    form: Form = Format.TABLE,
    verbose: Verbose = False,
) -> None:
    """Query every table with DuckDB SQL."""
    from nvtrader_pipelines.service.sql_shell import shell
    from nvtrader_pipelines.storage.views import query_views

    with one_sentence(verbose=verbose):
        home = found_home()
        if query is None:
            shell(home, form)
        else:
            write_rows(query_views(home, query), form)


@app.command(epilog=EPILOG)
def tables(*, form: Form = Format.TABLE, verbose: Verbose = False) -> None:
    """List every table with its rows, size and snapshot."""
    from nvtrader_pipelines.storage.warehouse import Warehouse

    with one_sentence(verbose=verbose):
        write_rows(Warehouse(found_home()).describe_all(), form)


@app.command(epilog=EPILOG)
def runs(*, form: Form = Format.TABLE, verbose: Verbose = False) -> None:
    """List the completed runs, newest first, with the net Sharpe ratio of each."""
    from nvtrader_pipelines.service.summary import completed_runs, print_notes

    with one_sentence(verbose=verbose):
        home = found_home()
        write_rows(completed_runs(home), form)
        if form is Format.TABLE:
            print_notes(home, wide_console())


@app.command(epilog=EPILOG)
def doctor(*, as_json: AsJson = False, verbose: Verbose = False) -> None:
    """Show versions, paths, disk, and what is missing."""
    with one_sentence(verbose=verbose):
        findings = diagnose(found_home())
        if as_json:
            sys.stdout.write(json.dumps([asdict(finding) for finding in findings], indent=1) + "\n")
        else:
            write_rows(pl.DataFrame([asdict(finding) for finding in findings]), Format.TABLE)
        if any(finding.problem for finding in findings):
            raise typer.Exit(FAILED)


def main() -> None:
    """Entry point of the `nvtrader` script."""
    atexit.register(_silence_exit)
    app()


def _silence_exit() -> None:
    """DuckDB's binding writes 60 lines about Dagster's caches to stderr when the interpreter ends."""
    sys.stderr.flush()
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
