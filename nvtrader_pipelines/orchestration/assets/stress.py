"""Stress: what every account of a run makes of shocks, dearer trading, drawn worlds and the crises of the past."""

import dagster as dg

from nvtrader_pipelines.evaluation.steps import drain
from nvtrader_pipelines.evaluation.stress.verdict import summary
from nvtrader_pipelines.figures import stress_figures
from nvtrader_pipelines.orchestration.assets.policies import POLICY_KEY
from nvtrader_pipelines.orchestration.partitions import EXPERIMENTS
from nvtrader_pipelines.orchestration.progress import ProgressLog
from nvtrader_pipelines.orchestration.reports import keep_pictures, markdown_table, written
from nvtrader_pipelines.runs.planning import reopen_plan
from nvtrader_pipelines.runs.stress import stress_run
from nvtrader_pipelines.runs.tables import replace_run
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
    """Growth, drawdown, worst session, costs and recovery of every account in every stressed world."""
    key = context.partition_key
    run = store.policies.read_latest(key)
    plan = reopen_plan(store, run)
    verdict = drain(stress_run(store, plan, run, context.run.run_id), progress.to(context))
    n_rows = replace_run(store, STRESS, verdict, run)
    figures = stress_figures(verdict, run.experiment, "; ".join(plan.warnings))
    pictures = keep_pictures(store.home, "stress", figures, key)
    table = dg.MetadataValue.md(markdown_table(summary(verdict)))
    return written(store, STRESS, n_rows, {"run_id": run.run_id, "table": table, **pictures})
