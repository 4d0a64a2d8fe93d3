"""Evaluation: the verdict on each run."""

from datetime import UTC, datetime

import dagster as dg

from nvtrader_pipelines.evaluation.walk_forward import evaluate
from nvtrader_pipelines.experiments.runtime import headline
from nvtrader_pipelines.orchestration.mlflow_tracking import MlflowTracking
from nvtrader_pipelines.orchestration.partitions import EXPERIMENTS
from nvtrader_pipelines.orchestration.reports import written
from nvtrader_pipelines.runs.lifecycle import failing
from nvtrader_pipelines.runs.tables import complete, read_run, replace_run
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.tables import ACTION_LOGS, EQUITY_CURVES, EVALUATIONS

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
    context: dg.AssetExecutionContext, store: dg.ResourceParam[Store], mlflow: MlflowTracking
) -> dg.MaterializeResult:
    """Net Sharpe with intervals, growth, drawdown, turnover and cost per fold and period, policy by baseline."""
    run = store.policies.read_latest(context.partition_key)
    spec = store.ledger.read(context.partition_key)
    with failing(store.ledger, run.run_id), mlflow.run(run.run_id, context.partition_key) as tracked:
        curves, actions = (read_run(store, table, run) for table in (EQUITY_CURVES, ACTION_LOGS))
        verdict = evaluate(curves, actions, spec.report_from)
        n_rows = replace_run(store, EVALUATIONS, verdict, run)
        tracked.log_verdict(verdict)
        complete(store, run, datetime.now(UTC), tracked.mlflow_run_id)
        store.ledger.finish(run.run_id, "done", metrics=headline(verdict), mlflow_run_id=tracked.mlflow_run_id)
    return written(store, EVALUATIONS, n_rows, {"run_id": run.run_id, **tracked.metadata})
