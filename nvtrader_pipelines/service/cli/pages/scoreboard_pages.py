"""Pages of the scoreboard: the ranking of each contest, and the scorings of an entrant."""

from typing import Any

import polars as pl

from nvtrader_pipelines.evaluation.formats import (
    annual_cell,
    difference_cells,
    format_interval,
    openings_cell,
    sharpe_cells,
)
from nvtrader_pipelines.evaluation.short_samples import IS_RANKED, short_note
from nvtrader_pipelines.service.cli.output import format_cell, print_line, print_sentences, print_table
from nvtrader_pipelines.service.cli.table_layout import CellTable
from nvtrader_pipelines.service.consoles import wide_console

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


def print_ranking(ranking: pl.DataFrame) -> None:
    """Print a table per contest, and the reasons why others are not ranked."""
    for (contest,), rows in ranking.partition_by("contest", as_dict=True, maintain_order=True).items():
        ranked = rows.filter(IS_RANKED)
        if len(ranked):
            _print_contest(ranked, str(contest))
        for name, note in rows.filter(~IS_RANKED).select("entrant", "note").iter_rows():
            print_line(f"not ranked: {name}: {note}", "yellow")
    wide_console().print(LEGEND, style="dim")


def print_history(rows: pl.DataFrame, name: str) -> None:
    """Print a line per scoring of an entrant."""
    cells = [[format_cell(row[column]) for column in HISTORY] for row in rows.iter_rows(named=True)]
    table = CellTable([column.replace("_", " ") for column in HISTORY], cells)
    print_table(table, f"{name}: all scorings, newest first")
    print_sentences(rows.select("judged_at", "note").iter_rows())
    if note := short_note(rows["n_sessions"]):
        print_line(note, "dim")


def _print_contest(rows: pl.DataFrame, contest: str) -> None:
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
    print_sentences(rows.filter(pl.col("kind") != "baseline").select("entrant", "note").iter_rows())
    if note := short_note([n_sessions]):
        print_line(note, "dim")


def _cells(row: dict[str, Any]) -> list[str]:
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


PAGES = {"update": lambda answer: print_ranking(answer.document)}
