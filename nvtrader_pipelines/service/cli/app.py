"""The `nvtrader` command."""

import atexit
import gc
import json
import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from nvtrader_pipelines.service.cli import (
    components,
    experiments,
    halt,
    plans,
    policies,
    portfolio,
    runs,
    scoreboard,
    trade,
)
from nvtrader_pipelines.service.cli.errors import FAILED, one_sentence
from nvtrader_pipelines.service.cli.options import EPILOG, AsJson, Form, Verbose, found_home, open_store
from nvtrader_pipelines.service.cli.tables import Format, wide_console, write_rows

app = typer.Typer(
    name="nvtrader",
    help="Market prices to portfolio policies that can be trusted.",
    epilog=EPILOG,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)
app.add_typer(experiments.app, name="experiments")
app.add_typer(runs.app, name="runs")
app.add_typer(policies.app, name="policies")
app.command("components", epilog=EPILOG)(components.components)
app.command("schema", epilog=EPILOG)(components.schema)
app.add_typer(scoreboard.app, name="scoreboard")
app.command("trade", epilog=EPILOG)(trade.trade)
app.add_typer(portfolio.app, name="portfolio")
app.add_typer(plans.app, name="plans")
app.command("halt", epilog=EPILOG)(halt.halt)
app.command("resume", epilog=EPILOG)(halt.resume)


@app.command(epilog=EPILOG)
def materialize(
    experiment: Annotated[
        list[str] | None, typer.Argument(help="Names to run; all of data/experiments if none.")
    ] = None,
    *,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Materialize the whole graph, recomputing only what changed, and print the results."""
    experiments.run_experiments(experiment or [], as_json=as_json, verbose=verbose)


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
    from nvtrader_pipelines.service.cli.sql_shell import shell
    from nvtrader_pipelines.storage.views import query_views

    with one_sentence(verbose=verbose):
        store = open_store()
        if query is None:
            shell(store, form)
        else:
            write_rows(query_views(store, query), form)


@app.command(epilog=EPILOG)
def report(
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="The file to write; else warehouse/report.html.")
    ] = None,
    *,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Write everything that was judged into one self-contained HTML file."""
    from nvtrader_pipelines.service.report.report import write_report

    with one_sentence(verbose=verbose):
        store = open_store()
        path, facts = write_report(store, output or store.home.report)
        if as_json:
            sys.stdout.write(json.dumps({"path": str(path), **facts}, indent=1) + "\n")
            return
        console = wide_console()
        for title, command in facts["missing"].items():
            console.print(f"nothing yet for {title!r}: {command}", style="yellow", highlight=False, soft_wrap=True)
        console.print(str(path), highlight=False, soft_wrap=True)


@app.command(epilog=EPILOG)
def tables(*, form: Form = Format.TABLE, verbose: Verbose = False) -> None:
    """List every table with its rows, size and snapshot."""
    with one_sentence(verbose=verbose):
        write_rows(open_store().tables.describe_all(), form)


@app.command(epilog=EPILOG)
def doctor(*, as_json: AsJson = False, verbose: Verbose = False) -> None:
    """Show versions, paths, disk, what is missing, and whether the account may trade."""
    import polars as pl

    from nvtrader_pipelines.service.cli.doctor import diagnose

    with one_sentence(verbose=verbose):
        findings = diagnose(open_store())
        if as_json:
            sys.stdout.write(json.dumps([asdict(finding) for finding in findings], indent=1) + "\n")
        else:
            write_rows(pl.DataFrame([asdict(finding) for finding in findings]), Format.TABLE)
        if any(finding.problem for finding in findings):
            raise typer.Exit(FAILED)


def main() -> None:
    """Entry point of the `nvtrader` script."""
    gc.set_threshold(50_000, 20, 20)  # a search for garbage at every 700 objects is a fifth of what imports take
    atexit.register(_leave)
    app()


def _leave() -> None:
    """End without a last search for garbage, which takes over a second after so many imports, and in silence.

    DuckDB's binding writes 60 lines about Dagster's caches to stderr when the interpreter ends.
    """
    gc.freeze()
    sys.stderr.flush()
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
