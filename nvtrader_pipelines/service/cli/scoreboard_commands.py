"""`nvtrader scoreboard`: show the ranking of all entrants; `update` scores them again."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nvtrader_pipelines.service.cli.command import command
from nvtrader_pipelines.service.cli.exit_codes import FAILED, print_error
from nvtrader_pipelines.service.cli.output import (
    Format,
    format_cell,
    print_line,
    print_sentences,
    print_table,
    write_rows,
)
from nvtrader_pipelines.service.cli.table_layout import CellTable
from nvtrader_pipelines.service.consoles import wide_console
from nvtrader_pipelines.service.open_home import open_store

if TYPE_CHECKING:
    import polars as pl

COLUMNS = ("rank", "entrant", "net Sharpe", "Sharpe 95 %", "openings", "kind", "less best baseline", "difference 95 %")
MORE_COLUMNS = ("deflated", "CAGR", "max DD", "information ratio", "ratio 95 %", "turnover/y", "before")
TEXT_COLUMNS = ("entrant", "kind")
HISTORY = (
    "judged_at",
    "sharpe",
    "first_session",
    "last_session",
    "information_ratio",
    "deflated_information_ratio",
    "contest",
)
LEGEND = (
    "Ranked by net Sharpe ratio within one contest: the same sessions, fills, costs, leverage and start in cash. "
    "Openings: Sharpe ratios over the sessions on which the account's decisions could have started; a difference that "
    "another opening turns around is luck. "
    "Less best baseline: difference of Sharpe ratios; the baseline is picked with hindsight. Information ratio: Sharpe "
    "ratio of the residual return, less beta times that baseline's. Deflated: probability that the information "
    "ratio exceeds what the best of all trials reaches by luck; the check asks for .95. Before: rank and Sharpe ratio "
    "in the previous scoring."
)
NO_ENTRANT = "no entrant is on the market of this contest; train an experiment on it, or name another contest"

app = typer.Typer(name="scoreboard", help="All entrants on common sessions, ranked within contests.")


@command(app.command, "nvtrader scoreboard update", "nvtrader scoreboard update --json")
def update(*, form: Format) -> None:
    """Score all entrants on common sessions: runs, baselines, and files of data/entrants.

    Refused entrants are listed with the reason; if no entrant is ranked, the command exits with 1.
    """
    from nvtrader_pipelines.scoreboard.cards import score_all, update_scoreboard
    from nvtrader_pipelines.storage.views.publishing import publish

    store = open_store()
    scored = score_all(store, datetime.now(UTC), _progress(form))
    board = update_scoreboard(store)
    publish(store)
    _show(board, form)
    if form is Format.TABLE:
        print_line(f"new scorecards: {scored.n_new}, in {store.home.scorecards}")
    require_ranked(board)


@command(
    app.callback,
    "nvtrader scoreboard",
    "nvtrader scoreboard --format csv",
    "nvtrader scoreboard --contest common",
    invoke_without_command=True,
)
def scoreboard(
    *,
    history: Annotated[str | None, typer.Option(metavar="NAME", help="All scorings of one entrant.")] = None,
    contest: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Score all entrants on the sessions of this contest and rank them."),
    ] = None,
    form: Format,
) -> None:
    """Show the ranking of all entrants as of the last update, by contest."""
    from nvtrader_pipelines.scoreboard.board import read_history, read_scoreboard

    store = open_store()
    if contest is not None:
        from nvtrader_pipelines.scoreboard.cards import score_contest  # takes half a second to import

        board = score_contest(store, contest, datetime.now(UTC), _progress(form))
        _show(board, form)
        require_ranked(board)
    elif history is None:
        _show(read_scoreboard(store), form)
    else:
        _show_history(read_history(store, history), history, form)


def require_ranked(board: "pl.DataFrame") -> None:
    """Exit with 1 if no entrant was scored, or every one is refused."""
    if board["rank"].null_count() == len(board):
        refused = "no entrant is ranked; the note of each gives the reason"
        print_error(refused if len(board) else NO_ENTRANT, FAILED)
        raise typer.Exit(FAILED)


def _progress(form: Format) -> Callable[[str], None]:
    """Print each line of progress beside a table."""
    return (lambda text: print_line(text, "dim")) if form is Format.TABLE else (lambda _: None)


def _show(board: "pl.DataFrame", form: Format) -> None:
    from nvtrader_pipelines.service.documents.scoreboard_facts import RankedEntrant
    from nvtrader_pipelines.service.documents.short_samples import mask_short

    if form is not Format.TABLE:
        write_rows(mask_short(board), form, model=RankedEntrant)
        return
    for (contest,), rows in board.partition_by("contest", as_dict=True, maintain_order=True).items():
        ranked, unranked = rows.filter(rows["rank"].is_not_null()), rows.filter(rows["rank"].is_null())
        if len(ranked):
            _print_contest(mask_short(ranked), str(contest))
        for name, note in unranked.select("entrant", "note").iter_rows():
            print_line(f"not ranked: {name}: {note}", "yellow")
    wide_console().print(LEGEND, style="dim")


def _print_contest(rows: "pl.DataFrame", contest: str) -> None:
    from nvtrader_pipelines.service.documents.short_samples import short_note

    fields = ("contest_name", "source", "calendar", "first_session", "last_session", "n_sessions")
    name, source, calendar, first, last, n_sessions = rows.select(fields).row(0)
    columns = (*COLUMNS, *MORE_COLUMNS)
    table = CellTable(
        columns,
        [_cells(row) for row in rows.iter_rows(named=True)],
        [i for i, name in enumerate(columns) if name not in TEXT_COLUMNS],
        [i for i, kind in enumerate(rows["kind"]) if kind != "baseline"],
    )
    print_table(table, f"contest {name}: {source} ({calendar}), {first} to {last} ({n_sessions} sessions), {contest}")
    if note := short_note([n_sessions]):
        print_line(note, "dim")


def _cells(row: dict[str, Any]) -> list[str]:
    from nvtrader_pipelines.service.account_cells import (
        annual_cell,
        difference_cells,
        format_interval,
        openings_cell,
        sharpe_cells,
    )

    before = row["previous_rank"]
    return [
        annual_cell(row, "rank", ""),
        row["entrant"],
        *sharpe_cells(row),
        openings_cell(row),
        row["kind"],
        *difference_cells(row),
        annual_cell(row, "deflated_information_ratio", ".2f"),
        annual_cell(row, "cagr", ".1%"),
        f"{row['max_drawdown']:.0%}",
        annual_cell(row, "information_ratio", "+.2f"),
        format_interval(row, "information_ratio", "+.2f"),
        annual_cell(row, "turnover_per_year", ".1f"),
        "" if before is None else f"{before} ({row['previous_sharpe']:.2f})",
    ]


def _show_history(rows: "pl.DataFrame", name: str, form: Format) -> None:
    from nvtrader_pipelines.service.documents.scoreboard_facts import ScoredEntrant
    from nvtrader_pipelines.service.documents.short_samples import mask_short, short_note

    rows = mask_short(rows)
    if form is not Format.TABLE:
        write_rows(rows, form, model=ScoredEntrant)
        return
    cells = [[format_cell(row[column]) for column in HISTORY] for row in rows.iter_rows(named=True)]
    table = CellTable([column.replace("_", " ") for column in HISTORY], cells)
    print_table(table, f"{name}: all scorings, newest first")
    print_sentences(rows.select("judged_at", "note").iter_rows())
    if note := short_note(rows["n_sessions"]):
        print_line(note, "dim")
