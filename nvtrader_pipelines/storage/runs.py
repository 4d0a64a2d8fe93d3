"""What a run leaves in the tables: its rows replaced under its own keys, and the row that marks it complete."""

import json
from collections.abc import Iterator
from datetime import datetime

import polars as pl

from nvtrader_pipelines.evaluation.backtest import BacktestRecord
from nvtrader_pipelines.experiments.runtime import CODE_VERSION
from nvtrader_pipelines.storage.policy_library import SealedRun
from nvtrader_pipelines.storage.tables import (
    ACTION_LOGS,
    EQUITY_CURVES,
    REWARD_DECOMPOSITION,
    RUNS,
    TRAJECTORIES,
    Table,
)
from nvtrader_pipelines.storage.warehouse import Warehouse


def replace_run(lake: Warehouse, table: Table, rows: pl.DataFrame, run: SealedRun) -> int:
    """Replace exactly a run's rows; the number written."""
    keys = {"spec_hash": run.spec_hash, "run_id": run.run_id, "experiment": run.experiment}
    named = {name: value for name, value in keys.items() if any(name == column.name for column in table.fields)}
    lake.replace(
        table,
        rows.with_columns(pl.lit(value).alias(name) for name, value in named.items()),
        {"spec_hash": [run.spec_hash], "run_id": [run.run_id]},
    )
    return len(rows)


def read_run(lake: Warehouse, table: Table, run: SealedRun) -> pl.DataFrame:
    """A run's rows."""
    return lake.read(table, {"spec_hash": [run.spec_hash], "run_id": [run.run_id]})


def write_record(lake: Warehouse, run: SealedRun, record: BacktestRecord) -> Iterator[tuple[Table, int]]:
    """Write the four trajectory tables; each is handed out once it is committed."""
    yield TRAJECTORIES, replace_run(lake, TRAJECTORIES, record.trajectories, run)
    yield EQUITY_CURVES, replace_run(lake, EQUITY_CURVES, record.equity_curves, run)
    yield ACTION_LOGS, replace_run(lake, ACTION_LOGS, record.action_logs, run)
    yield REWARD_DECOMPOSITION, replace_run(lake, REWARD_DECOMPOSITION, record.reward_decomposition, run)


def complete(lake: Warehouse, run: SealedRun, seeds: tuple[int, ...], mlflow_run_id: str, at: datetime) -> None:
    """Write the row that marks a run as judged; it comes after all its other rows."""
    row = {
        "spec_hash": run.spec_hash,
        "run_id": run.run_id,
        "experiment": run.experiment,
        "partition_key": run.partition_key,
        "source": run.source,
        "panel_digest": run.panel_digest,
        "snapshot_ids": json.dumps(run.snapshot_ids, sort_keys=True),
        "seeds": list(seeds),
        "n_policies": len(run.policies),
        "policies_sha256": run.sha256,
        "code_version": CODE_VERSION,
        "mlflow_run_id": mlflow_run_id,
        "warnings": list(run.warnings),
        "finished_at": at,
    }
    lake.replace(RUNS, pl.DataFrame([row]), {"run_id": [run.run_id]})
