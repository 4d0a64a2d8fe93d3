"""Regime evaluation: what each run's accounts earned in each regime of their market."""

import dagster as dg

from nvtrader_pipelines.evaluation.regime_evaluation import evaluate_regimes, summary
from nvtrader_pipelines.figures import regime_evaluation_figure
from nvtrader_pipelines.figures.regime_figures import HINDSIGHT
from nvtrader_pipelines.orchestration.assets.gold import REGIMES_KEY
from nvtrader_pipelines.orchestration.partitions import EXPERIMENTS
from nvtrader_pipelines.orchestration.reports import keep_pictures, markdown_table, written
from nvtrader_pipelines.runs.tables import read_run, replace_run
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
    """Sharpe with intervals, growth, drawdown and active return of every account in each regime of its market."""
    key = context.partition_key
    run = store.policies.read_latest(key)
    verdict = evaluate_regimes(
        read_run(store, EQUITY_CURVES, run), store.tables.read(REGIMES, {"source": [run.source]})
    )
    n_rows = replace_run(store, REGIME_EVALUATION, verdict, run)
    note = "; ".join((HINDSIGHT.rstrip("."), *run.warnings))
    figure = regime_evaluation_figure(verdict, f"{run.experiment} in each regime", note)
    pictures = keep_pictures(store.home, "regime_evaluation", {"regimes": figure}, key)
    table = dg.MetadataValue.md(markdown_table(summary(verdict)))
    labelled = {"run_id": run.run_id, "regimes_snapshot_id": str(store.tables.snapshot_id(REGIMES)), "table": table}
    return written(store, REGIME_EVALUATION, n_rows, {**labelled, **pictures})
