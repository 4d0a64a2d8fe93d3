"""Summary of runs on the terminal: policies against baselines, warnings, and next commands."""

from collections.abc import Sequence
from typing import Any

import polars as pl
from rich.console import Console

from nvtrader_pipelines.components.text import short_id
from nvtrader_pipelines.evaluation.formats import annual_cell, difference_cells, openings_cell, sharpe_cells
from nvtrader_pipelines.evaluation.short_samples import short_note
from nvtrader_pipelines.experiments.plan_kinds import VALIDATION_ONLY
from nvtrader_pipelines.runs.run_document import summary_rows, with_distinct_names, with_validation_mark
from nvtrader_pipelines.runs.run_queries import sort_accounts
from nvtrader_pipelines.runs.run_tables import walk_forward_runs
from nvtrader_pipelines.service.cli.output import print_table
from nvtrader_pipelines.service.cli.table_layout import CellTable
from nvtrader_pipelines.storage.store import Store

COLUMNS = (
    "policy",
    *("net Sharpe", "Sharpe 95 %", "openings", "less best baseline", "difference 95 %"),
    *("CAGR", "max DD", "turnover/y", "cost/y"),
)
READING = (
    "A difference whose interval contains 0, or that another opening turns around, is no evidence of beating the "
    "baseline. Openings: Sharpe ratios over the sessions on which the account's decisions could have started."
)
MAX_EXPERIMENTS = 12  # of a period's table; all are on the scoreboard and in the report
NEXT = (
    'nvtrader sql "SELECT experiment, policy, fold, round(sharpe, 2) AS sharpe FROM evaluation.walk_forward_evaluation '
    "WHERE period = 'fold' ORDER BY experiment, policy, fold\"",
    "nvtrader report    # scoreboard and tear sheets on one page: warehouse/report.html",
    "nvtrader ui        # the graph, the plots and the runs on http://127.0.0.1:3000",
)


def print_summary(store: Store, names: Sequence[str], console: Console) -> None:
    """Print a table per market and period, the warnings, the paths, and three commands to try next."""
    verdicts = summary_rows(store, names)
    without_openings = []
    for (name,), of_market in verdicts.partition_by("market", as_dict=True, maintain_order=True).items():
        market = f"{name}, " if verdicts["market"].n_unique() > 1 else ""
        for (period,), rows in of_market.partition_by("period", as_dict=True, maintain_order=True).items():
            console.print()
            print_period(rows, f"{market}{period}", console)
        if not any(map(openings_cell, of_market.iter_rows(named=True))):
            without_openings.append(str(name))
    if market := ", ".join(without_openings if len(without_openings) < verdicts["market"].n_unique() else []):
        console.print(
            f"no openings on {market}: no contest of the scoreboard has these sessions and costs", style="dim"
        )
    console.print(READING, style="dim")
    print_warnings(store, console, names)
    home, views = store.home, store.home.duckdb_file
    console.print(f"\ntables  {home.iceberg}\nviews   {views}\npolicies {home.policies}", soft_wrap=True)
    console.print("\ntry next")
    for line in NEXT:
        console.print(f"  {line}", soft_wrap=True)


def print_warnings(store: Store, console: Console, names: Sequence[str] = ()) -> None:
    """Print the warnings of the runs of some experiments, or of all, each once."""
    runs = walk_forward_runs(store, ["run_id", "experiment", "warnings"]).explode("warnings").drop_nulls()
    runs = runs.filter(pl.col("experiment").is_in(list(names))) if names else runs
    for (warning,), affected in runs.group_by("warnings", maintain_order=True):
        labels = [f"{name} (run {short_id(run_id)})" for run_id, name in affected.select("run_id", "experiment").rows()]
        prefix = f"{', '.join(labels)}: " if warning == VALIDATION_ONLY else ""
        console.print(f"note: {prefix}{warning}", style="yellow", soft_wrap=True)


def print_period(verdicts: pl.DataFrame, title: str, console: Console) -> None:
    """Print the table of a market's period: the best experiments, then single policies, then baselines."""
    first, last = verdicts["first_session"].min(), verdicts["last_session"].max()
    own = [name for name in verdicts.columns if name not in {"spec_hash", "run_id", "experiment"}]
    rows = with_validation_mark(with_distinct_names(verdicts.unique(own, maintain_order=True)))
    is_experiment = pl.col("kind") == "ensemble"
    shown = sort_accounts(rows).filter(~is_experiment | (is_experiment.cum_sum() <= MAX_EXPERIMENTS))
    accounts = list(shown.iter_rows(named=True))
    cells, has_openings = [figure_cells(row) for row in accounts], any(map(openings_cell, accounts))
    shown_at = [i for i, name in enumerate(COLUMNS) if has_openings or name != "openings"]
    table = CellTable(
        [COLUMNS[i] for i in shown_at],
        [[row[i] for i in shown_at] for row in cells],
        numeric=range(1, len(shown_at)),
        bold=[i for i, row in enumerate(accounts) if row["kind"] == "ensemble"],
    )
    print_table(table, f"{title.replace('_', ' ')} ({first} to {last}), net of costs", console)
    if len(shown) < len(rows):
        more = f"… {len(rows) - len(shown)} more experiments; `nvtrader scoreboard` and `nvtrader report` show all"
        console.print(more, style="dim")
    if note := short_note(row["n_sessions"] for row in accounts):
        console.print(note, style="dim")


def figure_cells(row: dict[str, Any]) -> list[str]:
    """Format the figures of an account as the cells of a row."""
    return [
        str(row["policy"]),
        *sharpe_cells(row),
        openings_cell(row),
        *difference_cells(row),
        annual_cell(row, "cagr", ".1%"),
        f"{row['max_drawdown']:.0%}",
        annual_cell(row, "turnover_per_year", ".1f"),
        annual_cell(row, "cost_per_year", ".2%"),
    ]
