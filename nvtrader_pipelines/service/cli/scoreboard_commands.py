"""`nvtrader scoreboard`: show the ranking of all entrants; `update` scores them again."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table

from nvtrader_pipelines.service.cli.exit_codes import exit_on_error
from nvtrader_pipelines.service.cli.options import EPILOG, AsJson, Verbose, is_without_command, open_store
from nvtrader_pipelines.service.cli.output import format_bounded, format_cell, print_line, wide_console, write_json

if TYPE_CHECKING:
    import polars as pl

COLUMNS = ("rank", "entrant", "kind", "net Sharpe [95 %]", "less best baseline [95 %]", "information ratio [95 %]")
MORE_COLUMNS = ("deflated", "CAGR", "max DD", "turnover/y", "before")
N_LEFT = 3  # rank, and the text columns
HISTORY = (
    "judged_at",
    "contest",
    "first_session",
    "last_session",
    "sharpe",
    "information_ratio",
    "deflated_information_ratio",
)
LEGEND = (
    "Ranked by net Sharpe ratio within one contest: the same sessions, fills, costs, leverage and start in cash. "
    "Less best baseline: difference of Sharpe ratios; the baseline is picked with hindsight. Information ratio: Sharpe "
    "ratio of the active return against that baseline. Deflated: probability that the information ratio exceeds what "
    "the best of all trials reaches by luck; at least .95 is required. Before: rank and Sharpe ratio in the previous "
    "scoring."
)


app = typer.Typer(help="All entrants on common sessions, ranked within contests.", epilog=EPILOG)


@app.command(epilog=EPILOG)
def update(*, as_json: AsJson = False, verbose: Verbose = False) -> None:
    """Score all entrants on common sessions: runs, baselines, and files of data/entrants."""
    from nvtrader_pipelines.scoreboard.cards import score_all, update_scoreboard
    from nvtrader_pipelines.storage.views.publishing import publish

    with exit_on_error(verbose=verbose):
        store = open_store()
        scored = score_all(store, datetime.now(UTC), _progress(as_json=as_json))
        board = update_scoreboard(store)
        publish(store)
        _show(board, as_json=as_json)
        if not as_json:
            print_line(f"new scorecards: {scored.n_new}, in {store.home.scorecards}")


@app.callback(invoke_without_command=True, epilog=EPILOG)
def scoreboard(
    context: typer.Context,
    *,
    history: Annotated[str | None, typer.Option(metavar="NAME", help="All scorings of one entrant.")] = None,
    contest: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Score all entrants on the sessions of this contest and rank them."),
    ] = None,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Show the ranking of all entrants as of the last update, by contest."""
    if not is_without_command(context):
        return
    from nvtrader_pipelines.scoreboard.cards import read_history, read_scoreboard, score_contest

    with exit_on_error(verbose=verbose):
        store = open_store()
        if contest is not None:
            _show(score_contest(store, contest, datetime.now(UTC), _progress(as_json=as_json)), as_json=as_json)
        elif history is None:
            _show(read_scoreboard(store), as_json=as_json)
        else:
            _show_history(read_history(store, history), history, as_json=as_json)


def _progress(*, as_json: bool) -> Callable[[str], None]:
    """Print each line of progress; none beside JSON."""
    return (lambda _: None) if as_json else (lambda text: print_line(text, "dim"))


def _show(board: "pl.DataFrame", *, as_json: bool) -> None:
    if as_json:
        write_json(board.to_dicts())
        return
    console = wide_console()
    for (contest,), rows in board.partition_by("contest", as_dict=True, maintain_order=True).items():
        ranked, unranked = rows.filter(rows["rank"].is_not_null()), rows.filter(rows["rank"].is_null())
        if len(ranked):
            console.print(_contest_table(ranked, str(contest)))
        for name, note in unranked.select("entrant", "note").iter_rows():
            console.print(f"not ranked: {name}: {note}", style="yellow", soft_wrap=True)
    console.print(LEGEND, style="dim")


def _contest_table(rows: "pl.DataFrame", contest: str) -> Table:
    columns = ("contest_name", "source", "first_session", "last_session", "n_sessions")
    name, source, first, last, n_sessions = rows.select(columns).row(0)
    title = f"contest {name}: {source}, {first} to {last} ({n_sessions} sessions), {contest}"
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD)
    for i, name in enumerate((*COLUMNS, *MORE_COLUMNS)):
        table.add_column(name, justify="left" if 0 < i < N_LEFT else "right", no_wrap=True)
    for row in rows.iter_rows(named=True):
        table.add_row(*_cells(row), style=None if row["kind"] == "baseline" else "bold")
    return table


def _cells(row: dict[str, Any]) -> list[str]:
    before = row["previous_rank"]
    return [
        str(row["rank"]),
        row["entrant"],
        row["kind"],
        format_bounded(row, "sharpe", ".2f"),
        format_bounded(row, "sharpe_difference", "+.2f"),
        format_bounded(row, "information_ratio", "+.2f"),
        "" if row["deflated_information_ratio"] is None else f"{row['deflated_information_ratio']:.2f}",
        f"{row['cagr']:.1%}",
        f"{row['max_drawdown']:.0%}",
        f"{row['turnover_per_year']:.1f}",
        "" if before is None else f"{before} ({row['previous_sharpe']:.2f})",
    ]


def _show_history(rows: "pl.DataFrame", name: str, *, as_json: bool) -> None:
    if as_json:
        write_json(rows.to_dicts())
        return
    title = f"{name}: all scorings, newest first"
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD)
    for column in (*HISTORY, "note"):
        table.add_column(column.replace("_", " "), overflow="fold")
    for row in rows.iter_rows(named=True):
        table.add_row(*(format_cell(row[column]) for column in (*HISTORY, "note")))
    wide_console().print(table)
