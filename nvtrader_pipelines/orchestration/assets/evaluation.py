"""Evaluation: the verdict on a run."""

import dagster as dg

from nvtrader_pipelines.evaluation.step_generators import drain
from nvtrader_pipelines.orchestration.mlflow_tracking import MlflowTracking
from nvtrader_pipelines.orchestration.partitions import EXPERIMENTS
from nvtrader_pipelines.orchestration.progress_log import ProgressLog
from nvtrader_pipelines.orchestration.reports import table_result
from nvtrader_pipelines.runs.lifecycle import Launch
from nvtrader_pipelines.runs.planning import reopen_plan
from nvtrader_pipelines.runs.train_walk_judge import judge_run
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.tables import EVALUATIONS

EVALUATION_KEY = dg.AssetKey(["evaluation", "walk_forward_evaluation"])


@dg.asset(
    key=EVALUATION_KEY,
    group_name="evaluation",
    kinds={"iceberg", "polars"},
    deps=[["rl", "equity_curves"], ["rl", "action_logs"]],
    partitions_def=EXPERIMENTS,
    code_version="2",
)
def walk_forward_evaluation(
    context: dg.AssetExecutionContext,
    store: dg.ResourceParam[Store],
    mlflow: MlflowTracking,
    progress: dg.ResourceParam[ProgressLog],
) -> dg.MaterializeResult:
    """Sharpe ratio with interval, growth, drawdown, turnover and cost per account and period."""
    plan = reopen_plan(store, store.policies.read_latest(context.partition_key))
    launch = Launch(context.run.run_id, context.run.run_id)
    with mlflow.run(plan.run_id, context.partition_key, context.log.warning) as tracked:
        verdict = drain(judge_run(store, plan, launch, tracked), progress.reporter(context))
        tracked.log(lambda run: run.log_pictures(store.home.pictures, context.partition_key))
    return table_result(store, EVALUATIONS, len(verdict), {"run_id": plan.run_id, **tracked.metadata})
