"""Rows of a run in the tables, replaced under its keys, and its row of completion."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

import polars as pl

from nvtrader_pipelines.components.explanation import suggest
from nvtrader_pipelines.experiments.plan_kinds import PHASES
from nvtrader_pipelines.experiments.sealed_run import SealedRun
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.tables import (
    ACTION_LOGS,
    EQUITY_CURVES,
    REWARD_DECOMPOSITION,
    RUNS,
    TRAJECTORIES,
    Table,
)

if TYPE_CHECKING:  # take half a second to import
    from nvtrader_pipelines.evaluation.backtest import BacktestRecord
    from nvtrader_pipelines.storage.iceberg.commits import Where

WALK_FORWARD = "walk_forward"  # kind of a run that trained its policies, the only one that counts as a trial
JUDGEMENT_STARTS = "judging the tests"  # end of the message of the start of a run's last phase


def with_run_keys(table: Table, rows: pl.DataFrame, keys: dict[str, str]) -> pl.DataFrame:
    """Add the keys of a run that the table has columns for."""
    return rows.with_columns(pl.lit(value).alias(name) for name, value in keys.items() if name in table.schema)


def replace_run(store: Store, table: Table, rows: pl.DataFrame, run: SealedRun, **among: Sequence[str]) -> int:
    """Replace the rows of a run, or those with the given values; return their number."""
    keyed = with_run_keys(table, rows, {"spec_hash": run.spec_hash, "run_id": run.run_id, "experiment": run.experiment})
    store.tables.replace(table, keyed, {**_run_filter(run), **among})
    return len(rows)


def read_run(store: Store, table: Table, run: SealedRun, **among: Sequence[str]) -> pl.DataFrame:
    """Read the rows of a run, or those with the given values."""
    return store.tables.read(table, {**_run_filter(run), **among})


def _run_filter(run: SealedRun) -> Where:
    return {"spec_hash": [run.spec_hash], "run_id": [run.run_id]}


def write_record(store: Store, run: SealedRun, record: BacktestRecord) -> Iterator[tuple[Table, int]]:
    """Write the four trajectory tables; yield each table once it is written."""
    yield TRAJECTORIES, replace_run(store, TRAJECTORIES, record.trajectories, run, phase=[PHASES[run.kind]])
    yield EQUITY_CURVES, replace_run(store, EQUITY_CURVES, record.equity_curves, run)
    yield ACTION_LOGS, replace_run(store, ACTION_LOGS, record.action_logs, run)
    yield REWARD_DECOMPOSITION, replace_run(store, REWARD_DECOMPOSITION, record.reward_decomposition, run)


def complete_run(store: Store, run: SealedRun, at: datetime, mlflow_run_id: str | None = None) -> None:
    """Write the row that marks a run as judged, after all its other rows."""
    row = {
        "spec_hash": run.spec_hash,
        "run_id": run.run_id,
        "experiment": run.experiment,
        "partition_key": run.partition_key,
        "kind": run.kind,
        "parent_run_id": run.parent_run_id,
        "window_first": run.as_parent.window[0],
        "window_last": run.as_parent.window[1],
        "source": run.source,
        "panel_digest": run.panel_digest,
        "snapshot_ids": json.dumps(run.snapshot_ids, sort_keys=True),
        "seeds": list(run.seeds),
        "n_policies": len(run.policies),
        "policies_sha256": run.sha256,
        "code_version": run.code_version,
        "mlflow_run_id": mlflow_run_id,
        "warnings": list(run.warnings),
        "finished_at": at,
        "validation_only": run.as_parent.validation_only,
    }
    kinds = {"parent_run_id": pl.String, "mlflow_run_id": pl.String}
    store.tables.replace(RUNS, pl.DataFrame([row], schema_overrides=kinds), {"run_id": [run.run_id]})


def walk_forward_runs(store: Store, columns: Sequence[str] | None = None) -> pl.DataFrame:
    """Completed walk-forward runs that are not deleted.

    Runs that are `validation_only` are included; rankings and summaries must omit or mark them.
    """
    runs = store.tables.read(RUNS).filter(pl.col("kind") == WALK_FORWARD)
    runs = runs.filter(~pl.col("run_id").is_in(store.ledger.deleted_ids()))
    return runs if columns is None else runs.select(columns)


def suggest_run(runs: pl.DataFrame, text: str) -> str:
    """Return `; did you mean …?` with the nearest experiment, version or beginning of a run id.

    Args:
        runs: rows of the ledger.
        text: name or beginning of an id that no run has.
    """
    keys = runs["partition_key"].unique(maintain_order=True)
    names = [key.partition("@")[0] for key in keys]
    return suggest(text, [*names, *keys, *runs["run_id"].str.head(len(text))])


def join_warnings(runs: pl.DataFrame) -> str:
    """Join the distinct warnings of runs to one note."""
    return "; ".join(dict.fromkeys(warning for warnings in runs["warnings"] for warning in warnings))
