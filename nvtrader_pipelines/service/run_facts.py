"""What is known of a run: its row in the ledger, its spec, its policies, what happened, what it came to."""

from collections.abc import Sequence
from typing import Any

import polars as pl

from nvtrader_pipelines.storage.ledger import Ledger, LedgerRun
from nvtrader_pipelines.storage.specs import differences
from nvtrader_pipelines.storage.tables import EVALUATIONS, RUNS
from nvtrader_pipelines.storage.versions import content
from nvtrader_pipelines.storage.views import run_views
from nvtrader_pipelines.storage.warehouse import Warehouse

FIGURES = (
    "sharpe",
    "sharpe_low",
    "sharpe_high",
    "cagr",
    "volatility",
    "max_drawdown",
    "turnover_per_year",
    "cost_per_year",
    "best_baseline",
    "sharpe_difference",
)
LISTED = ("run_id", "kind", "status", "partition_key", "source", "window_first", "window_last", "parent_run_id")


def named_run(ledger: Ledger, text: str) -> LedgerRun:
    """The run whose id begins with the text, or the newest that trained the experiment or version of that name.

    Raises:
        StorageError: if there is none, or several ids begin so.
    """
    runs = ledger.runs().filter(pl.col("parent_run_id").is_null())
    named = runs.filter((pl.col("partition_key") == text) | pl.col("partition_key").str.starts_with(f"{text}@"))
    return ledger.find_run(named["run_id"][0] if len(named) else text)


def listed_runs(lake: Warehouse, ledger: Ledger) -> pl.DataFrame:
    """Every run, newest first, with the experiment's own figures over all of its window where it came to some."""
    own = figures(lake, None).filter(pl.col("kind") == "ensemble", pl.col("period") == "all")
    shown = own.select("run_id", "sharpe", "sharpe_low", "sharpe_high", "max_drawdown")
    runs = ledger.runs().select(*LISTED, "started_at", "finished_at", "message")
    return runs.join(shown, on="run_id", how="left").sort("started_at", descending=True)


def figures(lake: Warehouse, run_id: str | None) -> pl.DataFrame:
    """The verdict on a run, or on every run: a row per account and period, single folds left out."""
    rows = lake.read(EVALUATIONS) if run_id is None else lake.read(EVALUATIONS, {"run_id": [run_id]})
    order = pl.col("kind").replace_strict({"ensemble": 0, "policy": 1, "baseline": 2}, return_dtype=pl.Int8)
    return rows.filter(pl.col("period") != "fold").sort("period", order, "sharpe", descending=[False, False, True])


def described(lake: Warehouse, ledger: Ledger, run: LedgerRun) -> dict[str, Any]:
    """Everything, as a document."""
    policies = ledger.policies(run.run_id)
    verdict = figures(lake, run.run_id).select("policy", "kind", "period", *FIGURES)
    completed = lake.read(RUNS, {"run_id": [run.run_id]}, ["warnings"])["warnings"].to_list()
    return {
        "run": run.model_dump(mode="json"),
        "spec": content(ledger, run.partition_key),
        "policies": policies.to_dicts(),
        "figures": verdict.to_dicts(),
        "events": ledger.events(run.run_id).select("timestamp", "stage", "fold", "seed", "message").to_dicts(),
        "views": run_views(run.run_id) if completed else [],
        "warnings": [warning for warnings in completed for warning in warnings],
    }


def stages(events: Sequence[dict[str, Any]]) -> pl.DataFrame:
    """A row per stage, fold and seed: when it began, how often it was told of, and the last that was said."""
    rows = pl.DataFrame(events, infer_schema_length=None)
    if rows.is_empty():
        return rows
    of_stage = rows.group_by("stage", "fold", "seed", maintain_order=True)
    told = of_stage.agg(pl.col("timestamp").first().alias("first"), pl.len().alias("n"), pl.col("message").last())
    return told.select("first", "stage", "fold", "seed", "n", "message")


def compared(lake: Warehouse, runs: Sequence[LedgerRun]) -> pl.DataFrame:
    """The experiment's own figures side by side, one column per run; the whole of each one's window."""
    columns = {"figure": ["experiment", "kind", "window", *FIGURES]}
    for run in runs:
        own = figures(lake, run.run_id).filter(pl.col("kind") == "ensemble", pl.col("period") == "all")
        values = own.row(0, named=True) if len(own) else dict.fromkeys(FIGURES)
        window = f"{run.window_first} to {run.window_last}"
        columns[run.run_id[:8]] = [run.partition_key, run.kind, window, *(_text(values[name]) for name in FIGURES)]
    return pl.DataFrame(columns)


def spec_differences(ledger: Ledger, runs: Sequence[LedgerRun]) -> pl.DataFrame:
    """Fields in which the specs differ from the first run's: run, field, first, other."""
    first = content(ledger, runs[0].partition_key)
    parts = [
        differences(first, content(ledger, run.partition_key)).select(pl.lit(run.run_id[:8]).alias("run"), pl.all())
        for run in runs[1:]
    ]
    return pl.concat(parts)


def _text(value: object) -> str:
    return "" if value is None else f"{value:.4f}" if isinstance(value, float) else str(value)
