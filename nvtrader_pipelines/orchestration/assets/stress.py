"""Stress test of every account: shocks, higher costs, sampled markets and past crises."""

import dagster as dg

from nvtrader_pipelines.evaluation.step_generators import drain
from nvtrader_pipelines.evaluation.stress.verdict import summary
from nvtrader_pipelines.figures import stress_figures
from nvtrader_pipelines.orchestration.assets.policies import POLICY_KEY
from nvtrader_pipelines.orchestration.partitions import EXPERIMENTS
from nvtrader_pipelines.orchestration.progress_log import ProgressLog
from nvtrader_pipelines.orchestration.reports import markdown_table, store_pictures, table_result
from nvtrader_pipelines.runs.planning import reopen_plan
from nvtrader_pipelines.runs.run_tables import replace_run
from nvtrader_pipelines.runs.train_walk_judge import stress_run
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.tables import STRESS


@dg.asset(
    key=["evaluation", "stress"],
    group_name="evaluation",
    kinds={"iceberg", "pytorch"},
    deps=[POLICY_KEY],
    partitions_def=EXPERIMENTS,
    code_version="1",
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
    table = dg.MetadataValue.md(markdown_table(summary(verdict)))
    return table_result(store, STRESS, n_rows, {"run_id": run.run_id, "table": table, **pictures})
