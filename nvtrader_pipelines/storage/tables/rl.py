"""Runs, and per account the observations, actions, equity and rewards."""

import polars as pl

from nvtrader_pipelines.components.columns import Column, TableSchema
from nvtrader_pipelines.components.text import short_id
from nvtrader_pipelines.evaluation.account_tables import ACTION_LOG, EQUITY, REWARD_TERM
from nvtrader_pipelines.evaluation.verdict_tables import EXPERIMENT, RATIO_CURVE, RUN
from nvtrader_pipelines.policies.rollout_tables import TRAINING_CURVE, TRAJECTORY
from nvtrader_pipelines.storage.table import BY_RUN, Table

_RUNS = TableSchema(
    RUN,
    EXPERIMENT,
    Column("partition_key", pl.String, "name@hash8"),
    Column("kind", pl.String, "walk_forward, replay or forward"),
    Column("parent_run_id", pl.String, "run whose policies this one uses; null for a walk_forward"),
    Column("window_first", pl.Date, "first session of the test windows"),
    Column("window_last", pl.Date, "last session of the test windows"),
    Column("source", pl.String, "market source"),
    Column("panel_digest", pl.String, "SHA-256 of the panel's arrays"),
    Column("snapshot_ids", pl.String, "JSON of table to snapshot id at which the panel was read"),
    Column("seeds", pl.List(pl.Int32), "random seeds of the training, one policy per fold and seed"),
    Column("n_policies", pl.Int64, "number of trained policies"),
    Column("policies_sha256", pl.String, "digest of the run's manifest: policies, folds, chosen seeds, thresholds"),
    Column("code_version", pl.String, "version of this package"),
    Column("mlflow_run_id", pl.String, "MLflow run; null if not tracked"),
    Column("warnings", pl.List(pl.String), "caveats for a reader of the results"),
    RATIO_CURVE.only("finished_at"),
    Column("validation_only", pl.Boolean, "whether policies trained on later sessions: a trial, but never ranked"),
)
RUNS = Table("rl", "runs", _RUNS)
TRAINING_CURVES = Table("rl", "training_curves", TableSchema(RUN, TRAINING_CURVE), BY_RUN)
TRAJECTORIES = Table("rl", "trajectories", TableSchema(RUN, TRAJECTORY), BY_RUN)
EQUITY_CURVES = Table("rl", "equity_curves", TableSchema(RUN, EQUITY), BY_RUN)
ACTION_LOGS = Table("rl", "action_logs", TableSchema(RUN, ACTION_LOG), BY_RUN)
REWARD_DECOMPOSITION = Table("rl", "reward_decomposition", TableSchema(RUN, REWARD_TERM), BY_RUN)
VIEWED_BY_RUN = (TRAJECTORIES, EQUITY_CURVES, ACTION_LOGS, REWARD_DECOMPOSITION)


def run_views(run_id: str) -> list[str]:
    """Names of a run's views, `rl_<table>_run_<first 8 digits of its id>`.

    Runs whose ids begin with the same digits share them.
    """
    return [f"rl_{table.table}_run_{short_id(run_id)}" for table in VIEWED_BY_RUN]
