"""`nvtrader scoreboard`: the ranking of every entrant; `update` scores entrants again."""

import json
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from nvtrader_pipelines.service.cli.errors import one_sentence
from nvtrader_pipelines.service.cli.options import EPILOG, AsJson, Verbose, open_store, refuse_options_before_command
from nvtrader_pipelines.service.cli.tables import cell, wide_console

if TYPE_CHECKING:
    import polars as pl

COLUMNS = ("rank", "entrant", "kind", "net Sharpe [95 %]", "less best baseline [95 %]", "information ratio [95 %]")
MORE = ("deflated", "CAGR", "max DD", "turnover/y", "before")
LEFT = 3  # columns that are text
HISTORY = ("judged_at", "contest", "first_session", "last_session", "sharpe", "active_sharpe", "active_deflated_sharpe")
LEGEND = (
    "Ranked by net Sharpe ratio within one contest: the same sessions, fills, costs, leverage and start in cash. "
    "Less best baseline: difference of Sharpe ratios to it, known only afterwards. Information ratio: Sharpe ratio of "
    "the active return, session by session less that baseline's. Deflated: probability that it is more than the luck "
    "of the best of all trials; below .95 it may be no more. Before: rank and Sharpe ratio before the last new "
    "judgement."
)


app = typer.Typer(help="Every entrant on common sessions, ranked like with like.", epilog=EPILOG)


@app.command(epilog=EPILOG)
def update(*, as_json: AsJson = False, verbose: Verbose = False) -> None:
    """Score every entrant on common sessions: runs, baselines, and the files of data/entrants."""
    from nvtrader_pipelines.scoreboard.cards import score_all, update_scoreboard
    from nvtrader_pipelines.storage.views import publish

    with one_sentence(verbose=verbose):
        store, console = open_store(), wide_console()
        report = _silent if as_json else lambda text: console.print(text, style="dim", highlight=False, markup=False)
        result = score_all(store, datetime.now(UTC), report)
        board = update_scoreboard(store)
        publish(store)
        _show(board, as_json=as_json)
        if not as_json:
            console.print(
                f"new scorecards: {result.n_new}, in {store.home.scorecards}", soft_wrap=True, highlight=False
            )


@app.callback(invoke_without_command=True, epilog=EPILOG)
def scoreboard(
    context: typer.Context,
    *,
    history: Annotated[str | None, typer.Option(metavar="NAME", help="Every judgement of one entrant.")] = None,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Show the ranking of every entrant as of the last update, like with like."""
    refuse_options_before_command(context)
    if context.invoked_subcommand is not None:
        return
    from nvtrader_pipelines.scoreboard.cards import read_history, read_scoreboard

    with one_sentence(verbose=verbose):
        store = open_store()
        if history is None:
            _show(read_scoreboard(store), as_json=as_json)
        else:
            _show_history(read_history(store, history), history, as_json=as_json)


def _silent(_: str) -> None:
    """Tell nothing."""


def _show(board: "pl.DataFrame", *, as_json: bool) -> None:
    if as_json:
        _write(board)
        return
    console = wide_console()
    for (contest,), rows in board.partition_by("contest", as_dict=True, maintain_order=True).items():
        ranked, unranked = rows.filter(rows["rank"].is_not_null()), rows.filter(rows["rank"].is_null())
        if len(ranked):
            console.print(_table(ranked, str(contest)))
        for name, note in unranked.select("entrant", "note").iter_rows():
            console.print(f"not ranked: {name}: {note}", style="yellow", soft_wrap=True, markup=False, highlight=False)
    console.print(LEGEND, style="dim")


def _table(rows: "pl.DataFrame", contest: str) -> Table:
    source, first, last, n_sessions = rows.select("source", "first_session", "last_session", "n_sessions").row(0)
    title = f"{source}, {first} to {last} ({n_sessions} sessions), contest {contest}"
    table = Table(title=Text(title), title_justify="left", box=SIMPLE_HEAD)
    for i, name in enumerate((*COLUMNS, *MORE)):
        table.add_column(name, justify="left" if 0 < i < LEFT else "right", no_wrap=True)
    for row in rows.iter_rows(named=True):
        table.add_row(*map(Text, _cells(row)), style=None if row["kind"] == "baseline" else "bold")
    return table


def _cells(row: dict[str, Any]) -> list[str]:
    before = row["previous_rank"]
    return [
        str(row["rank"]),
        row["entrant"],
        row["kind"],
        _bounded(row, "sharpe", "sharpe", ".2f"),
        _bounded(row, "sharpe_difference", "difference", "+.2f"),
        _bounded(row, "active_sharpe", "active", "+.2f"),
        "" if row["active_deflated_sharpe"] is None else f"{row['active_deflated_sharpe']:.2f}",
        f"{row['cagr']:.1%}",
        f"{row['max_drawdown']:.0%}",
        f"{row['turnover_per_year']:.1f}",
        "" if before is None else f"{before} ({row['previous_sharpe']:.2f})",
    ]


def _bounded(row: dict[str, Any], name: str, bounds: str, form: str) -> str:
    if row[name] is None:
        return ""
    return f"{row[name]:{form}} [{row[f'{bounds}_low']:{form}}, {row[f'{bounds}_high']:{form}}]"


def _show_history(rows: "pl.DataFrame", name: str, *, as_json: bool) -> None:
    if as_json:
        _write(rows)
        return
    title = Text(f"{name}: every judgement, newest first")  # notes and names may hold what rich takes for markup
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD)
    for column in (*HISTORY, "note"):
        table.add_column(column.replace("_", " "), overflow="fold")
    for row in rows.iter_rows(named=True):
        table.add_row(*(Text(cell(row[column])) for column in (*HISTORY, "note")))
    wide_console().print(table)


def _write(rows: "pl.DataFrame") -> None:
    sys.stdout.write(json.dumps(rows.to_dicts(), indent=1, default=str) + "\n")
