"""Verdicts on a run: its evaluation, in market regimes, and under stress."""

import dagster as dg

from nvtrader_pipelines.evaluation.regime_evaluation import evaluate_regimes
from nvtrader_pipelines.evaluation.regime_evaluation import summary as regime_summary
from nvtrader_pipelines.evaluation.step_generators import drain
from nvtrader_pipelines.evaluation.stress.verdict import summary as stress_summary
from nvtrader_pipelines.figures import regime_evaluation_figure, stress_figures
from nvtrader_pipelines.figures.regime_figures import HINDSIGHT
from nvtrader_pipelines.orchestration.assets.gold import REGIMES_KEY
from nvtrader_pipelines.orchestration.assets.policies import POLICY_KEY
from nvtrader_pipelines.orchestration.mlflow_tracking import MlflowTracking
from nvtrader_pipelines.orchestration.partitions import experiment_asset
from nvtrader_pipelines.orchestration.progress_log import ProgressLog
from nvtrader_pipelines.orchestration.reports import markdown_table, store_pictures, table_result
from nvtrader_pipelines.runs.lifecycle import Launch
from nvtrader_pipelines.runs.planning import reopen_plan
from nvtrader_pipelines.runs.run_tables import read_run, replace_run
from nvtrader_pipelines.runs.train_walk_judge import judge_run, stress_run
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.tables import EQUITY_CURVES, EVALUATIONS, REGIME_EVALUATION, REGIMES, STRESS

EVALUATION_KEY = dg.AssetKey(["evaluation", "walk_forward_evaluation"])


@experiment_asset(
    key=EVALUATION_KEY,
    group_name="evaluation",
    kinds={"iceberg", "polars"},
    deps=[["rl", "equity_curves"], ["rl", "action_logs"]],
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


@experiment_asset(
    key=["evaluation", "regime_evaluation"],
    group_name="evaluation",
    kinds={"iceberg", "polars"},
    deps=[["rl", "equity_curves"], REGIMES_KEY],
)
def regime_evaluation(context: dg.AssetExecutionContext, store: dg.ResourceParam[Store]) -> dg.MaterializeResult:
    """Sharpe ratio with interval, growth, drawdown and active return per account and regime."""
    key = context.partition_key
    run = store.policies.read_latest(key)
    verdict = evaluate_regimes(
        read_run(store, EQUITY_CURVES, run),
        store.tables.read(REGIMES, {"source": [run.source]}),
        store.read_calendars().of(run.source).periods_per_year,
    )
    n_rows = replace_run(store, REGIME_EVALUATION, verdict, run)
    note = "; ".join((HINDSIGHT.rstrip("."), *run.warnings))
    figure = regime_evaluation_figure(verdict, f"{run.experiment} in each regime", note)
    pictures = store_pictures(store.home, "regime_evaluation", {"regimes": figure}, key)
    table = dg.MetadataValue.md(markdown_table(regime_summary(verdict)))
    metadata = {"run_id": run.run_id, "regimes_snapshot_id": str(store.tables.snapshot_id(REGIMES)), "table": table}
    return table_result(store, REGIME_EVALUATION, n_rows, {**metadata, **pictures})


@experiment_asset(
    key=["evaluation", "stress"], group_name="evaluation", kinds={"iceberg", "pytorch"}, deps=[POLICY_KEY]
)
def stress(
    context: dg.AssetExecutionContext, store: dg.ResourceParam[Store], progress: dg.ResourceParam[ProgressLog]
) -> dg.MaterializeResult:
    """Growth, drawdown, worst session, cost and recovery of every account in every scenario."""
    key = context.partition_key
    run = store.policies.read_latest(key)
    plan = reopen_plan(store, run)
    verdict = drain(stress_run(store, plan, run, context.run.run_id), progress.reporter(context))
    n_rows = replace_run(store, STRESS, verdict, run)
    figures = stress_figures(verdict, run.experiment, "; ".join(plan.warnings))
    pictures = store_pictures(store.home, "stress", figures, key)
    table = dg.MetadataValue.md(markdown_table(stress_summary(verdict)))
    return table_result(store, STRESS, n_rows, {"run_id": run.run_id, "table": table, **pictures})
