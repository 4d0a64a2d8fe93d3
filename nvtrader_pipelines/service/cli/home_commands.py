"""Commands of a home: create, show, check, query and serve it."""

import shlex
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from nvtrader_pipelines.service.cli.command import command
from nvtrader_pipelines.service.cli.exit_codes import FAILED
from nvtrader_pipelines.service.cli.output import Format, print_line, write_json, write_rows
from nvtrader_pipelines.service.consoles import wide_console
from nvtrader_pipelines.service.open_home import open_store, require_home
from nvtrader_pipelines.service.output_paths import require_file_path
from nvtrader_pipelines.storage.home import VARIABLE, Home
from nvtrader_pipelines.storage.store import Store

app = typer.Typer()
Stop = Annotated[bool, typer.Option("--stop", help="Stop the UI of this home, and start none.")]


@command(app.command, "nvtrader init my-home")
def init(folder: Annotated[Path, typer.Argument(help="New or empty folder.")], *, as_json: bool) -> None:
    """Create a home: a folder with the shipped experiments, for your data and for results."""
    from nvtrader_pipelines.service.documents.home_facts import CreatedHome
    from nvtrader_pipelines.storage.new_home import create_home

    home = create_home(folder)
    if as_json:
        write_json(CreatedHome(home=home.root).model_dump(mode="json"))
        return
    root = shlex.quote(str(home.root))
    enter = f"export {VARIABLE}={root}" if Home.find_fixed() else f"cd {root}"
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


@command(
    app.command,
    "nvtrader sql",
    "nvtrader sql 'SELECT policy, period, sharpe FROM evaluation.walk_forward_evaluation' --format csv",
    "nvtrader sql \"COPY rl.equity_curves TO 'exports/curves.parquet'\"",
)
def sql(
    query: Annotated[str | None, typer.Argument(help="SQL query; without one, an interactive shell starts.")] = None,
    *,
    allow_files: Annotated[
        bool, typer.Option("--allow-files", help="Allow the query to read and write any file, and DuckDB's extensions.")
    ] = False,
    form: Format,
) -> None:
    """Query every table with DuckDB SQL; COPY writes below the working folder or the home's exports/."""
    from nvtrader_pipelines.service.cli.sql_shell import answer, run_shell

    store = open_store()
    if query is None:
        run_shell(store, form, allow_files=allow_files)
    else:
        write_rows(answer(store, query, allow_files=allow_files), form)


@command(app.command, "nvtrader report", "nvtrader report --output ~/results.html")
def report(
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="File to write; default: warehouse/report.html.")
    ] = None,
    *,
    as_json: bool,
) -> None:
    """Write all results into one self-contained HTML file."""
    store = open_store()
    target = require_file_path(output.expanduser()) if output else store.home.report
    from nvtrader_pipelines.service.report.report import write_report

    document = write_report(store, target)
    if as_json:
        write_json(document.model_dump(mode="json"))
        return
    console = wide_console()
    for title, remedy in document.missing.items():
        console.print(f"no data yet for {title!r}: {remedy}", style="yellow", soft_wrap=True)
    console.print(str(document.path), soft_wrap=True)


@command(app.command, "nvtrader tables", "nvtrader tables --format csv")
def tables(*, form: Format) -> None:
    """List every table with its rows, size and snapshot."""
    from nvtrader_pipelines.service.documents.home_facts import ListedTable

    write_rows(open_store().tables.describe_all(), form, model=ListedTable)


@command(app.command, "nvtrader doctor", "nvtrader doctor --repair", "nvtrader doctor --json")
def doctor(
    *,
    repair: Annotated[
        bool, typer.Option("--repair", help="First rebuild damaged files that can be rebuilt from others.")
    ] = False,
    form: Format,
) -> None:
    """Check versions, paths, free disk, damaged files, and whether each account may trade."""
    import polars as pl

    from nvtrader_pipelines.service.cli.doctor import repair_home, run_checks
    from nvtrader_pipelines.service.documents.home_facts import ListedCheck

    home = require_home()
    repaired = repair_home(home) if repair else []
    rows = [asdict(each) for each in [*repaired, *run_checks(Store(home))]]
    write_rows(pl.DataFrame(rows), form, ["problem"], ListedCheck)
    if any(row["problem"] for row in rows):
        raise typer.Exit(FAILED)


@command(app.command, "nvtrader status", "nvtrader status --json")
def status(*, as_json: bool) -> None:
    """Show on one screen what trades, runs, waits and failed, the UI, and the next command.

    It reads the home and writes only a pointer file that differs from the audit. Failed checks and stale data take
    seconds to read: `nvtrader notify` and the UI report them.
    """
    from datetime import UTC, datetime

    from nvtrader_pipelines.service.cli.pages.status_page import print_status
    from nvtrader_pipelines.service.documents.home_status import read_home_status

    state = read_home_status(open_store(), datetime.now(UTC))
    if as_json:
        write_json(state.model_dump(mode="json"))
    else:
        print_status(state)


@command(app.command, "nvtrader notify", "nvtrader notify --test")
def notify(
    *,
    test: Annotated[bool, typer.Option("--test", help="Send a test message to each channel instead.")] = False,
    form: Format,
) -> None:
    """Send due notifications: failed runs or checks, waiting plans, stale data, kill switch.

    Each state is sent once per channel, and again only if it has ended and returned. The server of `nvtrader ui`, and
    the commands that train or trade, also send them.
    """
    import polars as pl

    from nvtrader_pipelines.notifications.channels import require_channels
    from nvtrader_pipelines.service.documents.home_facts import ChannelMessage

    store = open_store()
    channels = require_channels(store.home)
    if test:
        from datetime import UTC, datetime

        from nvtrader_pipelines.notifications.send_due import send_test

        results = send_test(store.home, channels, datetime.now(UTC))
        rows = [(name, "test message", problem) for name, problem in results.items()]
    else:
        from nvtrader_pipelines.service.due_notifications import send_now

        sending = send_now(store, with_runs=True)
        rows = [(name, each.subject, "") for name, sent in sending.sent.items() for each in sent]
        rows += [(name, "due", problem) for name, problem in sending.problems.items()]
    table = pl.DataFrame(rows, schema=dict.fromkeys(ChannelMessage.model_fields, pl.String), orient="row")
    write_rows(table, form, ["problem"], ChannelMessage)
    if any(problem for *_, problem in rows):
        raise typer.Exit(FAILED)


@command(app.command, "nvtrader ingest", "nvtrader ingest prices.csv", "nvtrader ingest --json")
def ingest(
    files: Annotated[
        list[Path] | None,
        typer.Argument(
            help="CSV or Parquet files, or folders of them, to copy into the source's folder; one of the same name is "
            "replaced."
        ),
    ] = None,
    source: Annotated[
        str, typer.Option("--source", help="Landing source of the files, as data/market.yaml names it.")
    ] = "landing",
    *,
    as_json: bool,
) -> None:
    """Ingest and clean files without training; show rows kept, refused, and coverage, if anything is new."""
    from nvtrader_pipelines.orchestration.materialize import update_market
    from nvtrader_pipelines.runs.market_state import deliver_prices, market_is_current
    from nvtrader_pipelines.runs.market_summary import summarize_market
    from nvtrader_pipelines.runs.registration import experiment_warnings
    from nvtrader_pipelines.service.cli.pages.market_page import print_market, print_unchanged
    from nvtrader_pipelines.service.documents.market_facts import market_document

    store = open_store()
    deliver_prices(store.home, files or [], source)
    if market_is_current(store) and not as_json:
        print_unchanged(summarize_market(store))
        return
    update_market(store, quiet=as_json)
    summary, experiments = summarize_market(store), experiment_warnings(store)
    if as_json:
        write_json(market_document(summary, experiments).model_dump(mode="json"))
    else:
        print_market(summary, wide_console(), experiments)
