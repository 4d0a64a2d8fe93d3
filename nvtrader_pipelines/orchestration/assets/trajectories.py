"""Trajectories: observations, actions, costs and rewards in the test windows."""

from collections.abc import Iterator
from functools import partial

import dagster as dg

from nvtrader_pipelines.evaluation.step_generators import drain
from nvtrader_pipelines.figures import equity_figure, reward_terms_figure, weights_figure
from nvtrader_pipelines.orchestration.assets.policies import POLICY_KEY
from nvtrader_pipelines.orchestration.partitions import EXPERIMENTS
from nvtrader_pipelines.orchestration.progress_log import ProgressLog
from nvtrader_pipelines.orchestration.reports import store_pictures, table_result
from nvtrader_pipelines.runs.lifecycle import Launch
from nvtrader_pipelines.runs.planning import reopen_plan
from nvtrader_pipelines.runs.run_pictures import exposure_pictures
from nvtrader_pipelines.runs.train_walk_judge import walk_run
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.tables import (
    ACTION_LOGS,
    EQUITY_CURVES,
    REWARD_DECOMPOSITION,
    TRAJECTORIES,
    Table,
)

DESCRIPTIONS = {
    TRAJECTORIES: "One row per account and decision: hash of the observation, action, reward.",
    EQUITY_CURVES: "One row per account and session: equity after costs, drawdown, turnover, cost, gross, financing.",
    ACTION_LOGS: "One row per account and decision: target weights, executed weights and trades per name.",
    REWARD_DECOMPOSITION: "One row per account, decision and reward term.",
}


def trajectory_spec(table: Table) -> dg.AssetSpec:
    """Build the asset spec of a trajectory table."""
    return dg.AssetSpec(
        [table.namespace, table.table],
        deps=[POLICY_KEY],
        description=DESCRIPTIONS[table],
        group_name="trajectories",
        kinds={"iceberg", "pytorch"},
        code_version="1",
    )


@dg.multi_asset(
    specs=[trajectory_spec(table) for table in DESCRIPTIONS],
    partitions_def=EXPERIMENTS,
    name="walk_forward",
)
def walk_forward(
    context: dg.AssetExecutionContext, store: dg.ResourceParam[Store], progress: dg.ResourceParam[ProgressLog]
) -> Iterator[dg.MaterializeResult]:
    """Walk seeds, their ensemble and baselines through the test windows on own accounts."""
    plan, launch = (
        reopen_plan(store, store.policies.read_latest(context.partition_key)),
        Launch(context.run.run_id, context.run.run_id),
    )
    record = drain(walk_run(store, plan, launch), progress.reporter(context))
    note, name = "; ".join(plan.warnings), plan.spec.name
    stored = partial(store_pictures, store.home, partition_key=context.partition_key)
    yield table_result(store, TRAJECTORIES, len(record.trajectories))
    curves = equity_figure(record.equity_curves, f"{name}: equity after costs", plan.spec.report_from, note)
    exposure = exposure_pictures(plan.spec, record.equity_curves, record.trajectories, note)
    pictures = stored("equity_curves", {"equity": curves, **exposure})
    yield table_result(store, EQUITY_CURVES, len(record.equity_curves), pictures)
    weights = weights_figure(record.action_logs, f"{name}: weights over time", note)
    yield table_result(store, ACTION_LOGS, len(record.action_logs), stored("action_logs", {"weights": weights}))
    terms = reward_terms_figure(record.reward_decomposition, f"{name}: cumulative reward by term", note)
    yield table_result(
        store, REWARD_DECOMPOSITION, len(record.reward_decomposition), stored("reward_decomposition", {"terms": terms})
    )
