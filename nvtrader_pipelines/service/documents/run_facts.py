"""What is known of a run: its row in the ledger, its spec, its policies, what happened, what it came to."""

from collections.abc import Sequence
from typing import Any

import polars as pl

from nvtrader_pipelines.components.ids import short_id
from nvtrader_pipelines.runs.run_tables import walk_forward_runs
from nvtrader_pipelines.service.cli.summary import in_order
from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.ledger import Ledger, LedgerRun
from nvtrader_pipelines.storage.specs import differences
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.tables import EVALUATIONS, RUNS
from nvtrader_pipelines.storage.versions import content
from nvtrader_pipelines.storage.views import run_views

KEYS = ("spec_hash", "run_id", "experiment", "fold")  # of a verdict's rows, known where a run's are shown
LISTED = ("run_id", "kind", "status", "partition_key", "source", "window_first", "window_last", "parent_run_id")


def named_run(ledger: Ledger, text: str) -> LedgerRun:
    """The run whose id begins with the text, or the newest that trained the experiment or version of that name.

    Raises:
        StorageError: if there is none, or several ids begin so.
    """
    runs = ledger.runs()
    named = (pl.col("partition_key") == text) | pl.col("partition_key").str.starts_with(f"{text}@")
    found = runs.filter(named, pl.col("parent_run_id").is_null())
    if len(found):
        return ledger.run(found["run_id"][0])
    if text and not runs["run_id"].str.starts_with(text).any():
        raise StorageError(
            f"no run's id begins with {text!r}, and no experiment of that name was run; see `nvtrader runs`"
        )
    return ledger.find_run(text)


def trained_run(store: Store, text: str) -> LedgerRun:
    """The run that is meant, whose policies can be used again.

    Raises:
        StorageError: if there is none, or its policies are not all trained.
    """
    run = named_run(store.ledger, text)
    if not store.policies.is_sealed(run.partition_key, run.parent_run_id or run.run_id):
        name = run.partition_key.partition("@")[0]
        raise StorageError(
            f"run {run.run_id} of {run.partition_key} is {run.status} and its policies are not all trained; "
            f"`nvtrader experiments run {name}` goes on with it"
        )
    return run


def listed_runs(store: Store) -> pl.DataFrame:
    """Every run, newest first, with the experiment's own figures over all of its window where it came to some."""
    shown = _own(store.tables.read(EVALUATIONS)).select("run_id", "sharpe", "sharpe_low", "sharpe_high", "max_drawdown")
    runs = store.ledger.runs().select(*LISTED, "started_at", "finished_at", "message")
    marks = walk_forward_runs(store, ["run_id", "validation_only"])
    known = runs.join(shown, on="run_id", how="left").join(marks, on="run_id", how="left")
    return known.with_columns(pl.col("validation_only").fill_null(value=False)).sort("started_at", descending=True)


def figures(store: Store, run_id: str) -> pl.DataFrame:
    """The verdict on a run: a row per account and period, single folds left out."""
    rows = store.tables.read(EVALUATIONS, {"run_id": [run_id]}).filter(pl.col("period") != "fold")
    return in_order(rows).drop(KEYS)


def described(store: Store, run: LedgerRun) -> dict[str, Any]:
    """Everything, as a document."""
    completed = store.tables.read(RUNS, {"run_id": [run.run_id]}, ["warnings"])["warnings"].to_list()
    return {
        "run": run.model_dump(mode="json"),
        "spec": content(store.ledger, run.partition_key),
        "policies": store.ledger.policies(run.run_id).drop("run_id").to_dicts(),
        "figures": figures(store, run.run_id).to_dicts(),
        "events": store.ledger.events(run.run_id).select("timestamp", "stage", "fold", "seed", "message").to_dicts(),
        "views": run_views(run.run_id) if completed else [],
        "warnings": [warning for warnings in completed for warning in warnings],
    }


def stages(events: pl.DataFrame) -> pl.DataFrame:
    """A row per stage, fold and seed: when it began, how often it was told of, and the last that was said."""
    of_stage = events.group_by("stage", "fold", "seed", maintain_order=True)
    told = of_stage.agg(pl.col("timestamp").first().alias("first"), pl.len().alias("n"), pl.col("message").last())
    return told.select("first", "stage", "fold", "seed", "n", "message")


def compared(store: Store, runs: Sequence[LedgerRun]) -> pl.DataFrame:
    """A row per run, in that order, with the experiment's own figures over all of its window."""
    columns = ("run_id", "partition_key", "kind", "window_first", "window_last")
    rows = pl.DataFrame([{name: getattr(run, name) for name in columns} for run in runs])
    verdicts = store.tables.read(EVALUATIONS, {"run_id": [run.run_id for run in runs]})
    own = _own(verdicts).drop("spec_hash", "experiment", "fold", "policy", "kind", "period")
    return rows.join(own, on="run_id", how="left", maintain_order="left")


def spec_differences(ledger: Ledger, runs: Sequence[LedgerRun]) -> pl.DataFrame:
    """Fields in which the specs differ from the first run's: run, field, left (the first's), right."""
    first = content(ledger, runs[0].partition_key)
    parts = [
        differences(first, content(ledger, run.partition_key)).select(
            pl.lit(short_id(run.run_id)).alias("run"), pl.all()
        )
        for run in runs[1:]
    ]
    return pl.concat(parts)


def _own(verdicts: pl.DataFrame) -> pl.DataFrame:
    return verdicts.filter(pl.col("kind") == "ensemble", pl.col("period") == "all")
