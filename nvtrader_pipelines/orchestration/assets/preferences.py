"""Preferences: which of two proposals did better from the same state."""

import dagster as dg
import polars as pl

from nvtrader_pipelines.envs.dynamics import resolve_fill
from nvtrader_pipelines.orchestration.assets.trajectories import ACTION_LOGS_KEY
from nvtrader_pipelines.orchestration.partitions import EXPERIMENTS
from nvtrader_pipelines.orchestration.reports import written
from nvtrader_pipelines.preferences.pairs import preference_pairs as compare_proposals
from nvtrader_pipelines.runs.planning import reopen_plan
from nvtrader_pipelines.runs.tables import read_run, replace_run
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.tables import ACTION_LOGS, PREFERENCE_PAIRS


@dg.asset(
    key=["preferences", "preference_pairs"],
    group_name="preferences",
    kinds={"iceberg", "polars"},
    deps=[ACTION_LOGS_KEY],
    partitions_def=EXPERIMENTS,
    code_version="1",
)
def preference_pairs(context: dg.AssetExecutionContext, store: dg.ResourceParam[Store]) -> dg.MaterializeResult:
    """Past rebalances: the policy's weights against each baseline's from the same state, by the next five sessions."""
    run = store.policies.read_latest(context.partition_key)
    plan = reopen_plan(store, run)
    environment = plan.spec.environment
    fill = resolve_fill(environment.fill, plan.panel)
    pairs = compare_proposals(read_run(store, ACTION_LOGS, run), plan.panel, environment.cost_models, fill)
    n_rows = replace_run(store, PREFERENCE_PAIRS, pairs, run)
    held_out = int(pairs["holdout"].sum())
    won = len(pairs.filter(pl.col("chosen") == run.experiment))
    return written(store, PREFERENCE_PAIRS, n_rows, {"holdout": held_out, "won_by_policy": won})
