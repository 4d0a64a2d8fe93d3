"""The result of the runs for a person: policies against baselines, where the tables are, what to try."""

from collections.abc import Sequence
from typing import Any

import polars as pl
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from nvtrader_pipelines.components.ids import short_id
from nvtrader_pipelines.experiments.plan import VALIDATION_ONLY
from nvtrader_pipelines.runs.run_tables import walk_forward_runs
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.tables import EVALUATIONS

COLUMNS = ("policy", "net Sharpe [95 %]", "CAGR", "max DD", "turnover/y", "cost/y", "less best baseline [95 %]")
NEXT = (
    'nvtrader sql "SELECT policy, fold, round(sharpe, 2) AS sharpe FROM evaluation.walk_forward_evaluation '
    "WHERE period = 'fold' ORDER BY policy, fold\"",
    "nvtrader report    # everything on one page: warehouse/report.html",
    "nvtrader ui        # the graph, the plots and the runs on http://127.0.0.1:3000",
)


def summary(store: Store, names: Sequence[str] = ()) -> pl.DataFrame:
    """Every account over each period but single folds, of each experiment's latest run on a market (or of those named).

    The columns are those of the verdicts, and whether the run is validation_only.
    """
    runs = walk_forward_runs(store)
    chosen = runs.filter(pl.col("experiment").is_in(list(names))) if names else runs
    latest = chosen.sort("finished_at").group_by("experiment", "source", maintain_order=True).last()
    verdicts = store.tables.read(EVALUATIONS).join(latest.select("run_id", "validation_only"), on="run_id")
    return verdicts.filter((pl.col("period") != "fold") & (pl.col("kind") != "policy"))


def print_summary(store: Store, names: Sequence[str], console: Console) -> None:
    """One table per period, the warnings, where things are, and three commands to try next."""
    verdicts = summary(store, names)
    for period in verdicts["period"].unique(maintain_order=True):
        console.print(period_table(verdicts.filter(pl.col("period") == period), period))
    console.print("An interval of the difference that holds 0 supports no claim of beating the baseline.", style="dim")
    print_notes(store, console)
    home = store.home
    console.print(f"\ntables  {home.iceberg}\nviews   {home.duckdb_file}\npolicies {home.policies}", soft_wrap=True)
    console.print("\ntry next")
    for line in NEXT:
        console.print(f"  {line}", highlight=False, markup=False, soft_wrap=True)


def print_notes(store: Store, console: Console) -> None:
    """What a reader of the results must know."""
    runs = walk_forward_runs(store, ["run_id", "experiment", "warnings"]).explode("warnings").drop_nulls()
    for (warning,), found in runs.group_by("warnings", maintain_order=True):
        named = [f"{name} (run {short_id(run_id)})" for run_id, name in found.select("run_id", "experiment").rows()]
        whose = f"{', '.join(named)}: " if warning == VALIDATION_ONLY else ""
        console.print(f"note: {whose}{warning}", style="yellow", soft_wrap=True)


def period_table(verdicts: pl.DataFrame, period: str) -> Table:
    """The experiments first, then single policies, then the baselines each once per experiment's environment."""
    first, last = verdicts["first_session"].min(), verdicts["last_session"].max()
    table = Table(
        title=f"{period.replace('_', ' ')} ({first} to {last}), net of costs", title_justify="left", box=SIMPLE_HEAD
    )
    for i, name in enumerate(COLUMNS):
        table.add_column(name, justify="left" if i == 0 else "right", no_wrap=True)
    own = [name for name in verdicts.columns if name not in {"spec_hash", "run_id", "experiment"}]
    for row in in_order(marked(told_apart(verdicts.unique(own, maintain_order=True)))).iter_rows(named=True):
        table.add_row(*cells(row), style="bold" if row["kind"] == "ensemble" else None)
    return table


def told_apart(verdicts: pl.DataFrame) -> pl.DataFrame:
    """The rows, with the experiment behind the name of a baseline that had several environments."""
    if "experiment" not in verdicts.columns:
        return verdicts
    named = pl.format("{} ({})", "policy", "experiment")
    return verdicts.with_columns(pl.when(pl.len().over("policy") > 1).then(named).otherwise("policy").alias("policy"))


def marked(verdicts: pl.DataFrame) -> pl.DataFrame:
    """The rows, with a word behind the accounts of runs that are `validation_only`, where the column is there."""
    if "validation_only" not in verdicts.columns:
        return verdicts
    named = pl.format("{} (validation only)", "policy")
    return verdicts.with_columns(pl.when("validation_only").then(named).otherwise("policy").alias("policy"))


def in_order(verdicts: pl.DataFrame) -> pl.DataFrame:
    """By period; in each the experiments, single policies and baselines, the best first."""
    order = pl.col("kind").replace_strict({"ensemble": 0, "policy": 1, "baseline": 2}, return_dtype=pl.Int8)
    return verdicts.sort("period", order, "sharpe", descending=[False, False, True])


def cells(row: dict[str, Any]) -> list[str]:
    """One account's figures as text."""
    difference = row["sharpe_difference"]
    return [
        str(row["policy"]),
        with_interval(row),
        f"{row['cagr']:.1%}",
        f"{row['max_drawdown']:.0%}",
        f"{row['turnover_per_year']:.1f}",
        f"{row['cost_per_year']:.2%}",
        ""
        if difference is None
        else f"{difference:+.2f} [{row['difference_low']:+.2f}, {row['difference_high']:+.2f}]",
    ]


def with_interval(row: dict[str, Any]) -> str:
    """The Sharpe ratio and its interval; empty where there is none."""
    return "" if row["sharpe"] is None else f"{row['sharpe']:.2f} [{row['sharpe_low']:.2f}, {row['sharpe_high']:.2f}]"
