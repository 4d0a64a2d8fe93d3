"""Summary of runs on the terminal: policies against baselines, warnings, and next commands."""

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from nvtrader_pipelines.components.ids import short_id
from nvtrader_pipelines.experiments.plan import VALIDATION_ONLY
from nvtrader_pipelines.runs.run_tables import walk_forward_runs
from nvtrader_pipelines.service.cli.output import format_bounded
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.tables import EVALUATIONS

COLUMNS = ("policy", "net Sharpe [95 %]", "CAGR", "max DD", "turnover/y", "cost/y", "less best baseline [95 %]")
NEXT = (
    'nvtrader sql "SELECT policy, fold, round(sharpe, 2) AS sharpe FROM evaluation.walk_forward_evaluation '
    "WHERE period = 'fold' ORDER BY policy, fold\"",
    "nvtrader report    # everything on one page: warehouse/report.html",
    "nvtrader ui        # the graph, the plots and the runs on http://127.0.0.1:3000",
)


def summary_rows(store: Store, names: Sequence[str] = ()) -> pl.DataFrame:
    """Read the verdicts of the latest run per experiment and market, without folds and seeds.

    The columns are those of the verdicts, and `validation_only`. Without names, all experiments are read.
    """
    runs = walk_forward_runs(store)
    chosen = runs.filter(pl.col("experiment").is_in(list(names))) if names else runs
    latest = chosen.sort("finished_at").group_by("experiment", "source", maintain_order=True).last()
    verdicts = store.tables.read(EVALUATIONS).join(latest.select("run_id", "validation_only"), on="run_id")
    return verdicts.filter((pl.col("period") != "fold") & (pl.col("kind") != "policy"))


def print_summary(store: Store, names: Sequence[str], console: Console) -> None:
    """Print a table per period, the warnings, the paths, and three commands to try next."""
    verdicts = summary_rows(store, names)
    for period in verdicts["period"].unique(maintain_order=True):
        console.print(period_table(verdicts.filter(pl.col("period") == period), period))
    console.print("A difference whose interval contains 0 is no evidence of beating the baseline.", style="dim")
    print_warnings(store, console)
    home = store.home
    console.print(f"\ntables  {home.iceberg}\nviews   {home.duckdb_file}\npolicies {home.policies}", soft_wrap=True)
    console.print("\ntry next")
    for line in NEXT:
        console.print(f"  {line}", highlight=False, markup=False, soft_wrap=True)


def print_warnings(store: Store, console: Console) -> None:
    """Print the warnings of all runs, each once."""
    runs = walk_forward_runs(store, ["run_id", "experiment", "warnings"]).explode("warnings").drop_nulls()
    for (warning,), affected in runs.group_by("warnings", maintain_order=True):
        labels = [f"{name} (run {short_id(run_id)})" for run_id, name in affected.select("run_id", "experiment").rows()]
        prefix = f"{', '.join(labels)}: " if warning == VALIDATION_ONLY else ""
        console.print(f"note: {prefix}{warning}", style="yellow", soft_wrap=True)


def period_table(verdicts: pl.DataFrame, period: str) -> Table:
    """Table of a period: experiments first, then single policies, then baselines."""
    first, last = verdicts["first_session"].min(), verdicts["last_session"].max()
    table = Table(
        title=f"{period.replace('_', ' ')} ({first} to {last}), net of costs", title_justify="left", box=SIMPLE_HEAD
    )
    for i, name in enumerate(COLUMNS):
        table.add_column(name, justify="left" if i == 0 else "right", no_wrap=True)
    own = [name for name in verdicts.columns if name not in {"spec_hash", "run_id", "experiment"}]
    rows = with_validation_mark(with_distinct_names(verdicts.unique(own, maintain_order=True)))
    for row in sort_accounts(rows).iter_rows(named=True):
        table.add_row(*figure_cells(row), style="bold" if row["kind"] == "ensemble" else None)
    return table


def with_distinct_names(verdicts: pl.DataFrame) -> pl.DataFrame:
    """Append the experiment to names of baselines that occur in several environments."""
    if "experiment" not in verdicts.columns:
        return verdicts
    named = pl.format("{} ({})", "policy", "experiment")
    return verdicts.with_columns(pl.when(pl.len().over("policy") > 1).then(named).otherwise("policy").alias("policy"))


def with_validation_mark(verdicts: pl.DataFrame) -> pl.DataFrame:
    """Append "(validation only)" to the names of accounts of such runs, if the column exists."""
    if "validation_only" not in verdicts.columns:
        return verdicts
    named = pl.format("{} (validation only)", "policy")
    return verdicts.with_columns(pl.when("validation_only").then(named).otherwise("policy").alias("policy"))


def sort_accounts(verdicts: pl.DataFrame) -> pl.DataFrame:
    """Sort by period, then experiments, single policies and baselines, best first."""
    order = pl.col("kind").replace_strict({"ensemble": 0, "policy": 1, "baseline": 2}, return_dtype=pl.Int8)
    return verdicts.sort("period", order, "sharpe", descending=[False, False, True])


def figure_cells(row: dict[str, Any]) -> list[str]:
    """Format the figures of an account as the cells of a row."""
    return [
        str(row["policy"]),
        format_sharpe(row),
        f"{row['cagr']:.1%}",
        f"{row['max_drawdown']:.0%}",
        f"{row['turnover_per_year']:.1f}",
        f"{row['cost_per_year']:.2%}",
        format_bounded(row, "sharpe_difference", "+.2f"),
    ]


def format_sharpe(row: Mapping[str, Any]) -> str:
    """Format the Sharpe ratio with its interval; empty if there is none."""
    return format_bounded(row, "sharpe", ".2f")
