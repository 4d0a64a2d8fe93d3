"""Regime evaluation: results of each account of a run in each market regime."""

import dagster as dg

from nvtrader_pipelines.evaluation.regime_evaluation import evaluate_regimes, summary
from nvtrader_pipelines.figures import regime_evaluation_figure
from nvtrader_pipelines.figures.regime_figures import HINDSIGHT
from nvtrader_pipelines.orchestration.assets.gold import REGIMES_KEY
from nvtrader_pipelines.orchestration.partitions import EXPERIMENTS
from nvtrader_pipelines.orchestration.reports import markdown_table, store_pictures, table_result
from nvtrader_pipelines.runs.run_tables import read_run, replace_run
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.tables import EQUITY_CURVES, REGIME_EVALUATION, REGIMES


@dg.asset(
    key=["evaluation", "regime_evaluation"],
    group_name="evaluation",
    kinds={"iceberg", "polars"},
    deps=[["rl", "equity_curves"], REGIMES_KEY],
    partitions_def=EXPERIMENTS,
    code_version="1",
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
    table = dg.MetadataValue.md(markdown_table(summary(verdict)))
    metadata = {"run_id": run.run_id, "regimes_snapshot_id": str(store.tables.snapshot_id(REGIMES)), "table": table}
    return table_result(store, REGIME_EVALUATION, n_rows, {**metadata, **pictures})
