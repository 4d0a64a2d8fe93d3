"""Trajectories: what every policy and baseline saw, did, paid and earned in its test windows."""

from collections.abc import Iterator
from functools import partial

import dagster as dg

from nvtrader_pipelines.evaluation.steps import drain
from nvtrader_pipelines.figures import equity_figure, reward_terms_figure, weights_figure
from nvtrader_pipelines.orchestration.assets.policies import POLICY_KEY
from nvtrader_pipelines.orchestration.partitions import EXPERIMENTS
from nvtrader_pipelines.orchestration.progress import ProgressLog
from nvtrader_pipelines.orchestration.reports import keep_pictures, written
from nvtrader_pipelines.runs.launch import walk_run
from nvtrader_pipelines.runs.lifecycle import Launch
from nvtrader_pipelines.runs.planning import reopen_plan
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.tables import (
    ACTION_LOGS,
    EQUITY_CURVES,
    REWARD_DECOMPOSITION,
    TRAJECTORIES,
    Table,
)

ACTION_LOGS_KEY = dg.AssetKey(["rl", "action_logs"])

DESCRIPTIONS = {
    TRAJECTORIES: "One row per account and decision: what was seen, done, earned.",
    EQUITY_CURVES: "One row per account and session: equity net of cost, drawdown, turnover, cost, cash.",
    ACTION_LOGS: "One row per account and decision: target and executed weights and trades, by name.",
    REWARD_DECOMPOSITION: "One row per account, decision and reward term.",
}


def spec_of(table: Table) -> dg.AssetSpec:
    """The asset of one trajectory table."""
    return dg.AssetSpec(
        [table.namespace, table.table],
        deps=[POLICY_KEY],
        description=DESCRIPTIONS[table],
        group_name="trajectories",
        kinds={"iceberg", "pytorch"},
        code_version="1",
    )


@dg.multi_asset(
    specs=[spec_of(table) for table in DESCRIPTIONS],
    partitions_def=EXPERIMENTS,
    name="walk_forward",
)
def walk_forward(
    context: dg.AssetExecutionContext, store: dg.ResourceParam[Store], progress: dg.ResourceParam[ProgressLog]
) -> Iterator[dg.MaterializeResult]:
    """Walk every seed, their ensemble and the baselines through the test windows, each on its own account."""
    plan, launch = (
        reopen_plan(store, store.policies.read_latest(context.partition_key)),
        Launch(context.run.run_id, context.run.run_id),
    )
    record = drain(walk_run(store, plan, launch), progress.to(context))
    note, name = "; ".join(plan.warnings), plan.spec.name
    kept = partial(keep_pictures, store.home, partition_key=context.partition_key)
    yield written(store, TRAJECTORIES, len(record.trajectories))
    curves = equity_figure(record.equity_curves, f"{name}: equity after costs", plan.spec.report_from, note)
    yield written(store, EQUITY_CURVES, len(record.equity_curves), kept("equity_curves", {"equity": curves}))
    weights = weights_figure(record.action_logs, f"{name}: weights over time", note)
    yield written(store, ACTION_LOGS, len(record.action_logs), kept("action_logs", {"weights": weights}))
    terms = reward_terms_figure(record.reward_decomposition, f"{name}: reward by term, summed over time", note)
    yield written(
        store, REWARD_DECOMPOSITION, len(record.reward_decomposition), kept("reward_decomposition", {"terms": terms})
    )
