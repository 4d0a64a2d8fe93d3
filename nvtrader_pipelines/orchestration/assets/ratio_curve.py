"""Sharpe ratio of every completed run and search trial over time, deflated for those before it."""

import dagster as dg
from dagster_duckdb import DuckDBResource

from nvtrader_pipelines.evaluation.sharpe.ratio_curve import sharpe_ratio_curve as rank_results
from nvtrader_pipelines.figures import ratio_curve_figure
from nvtrader_pipelines.orchestration.assets.autoresearch import TRIALS_KEY
from nvtrader_pipelines.orchestration.assets.evaluation import EVALUATION_KEY
from nvtrader_pipelines.orchestration.partitions import all_partitions
from nvtrader_pipelines.orchestration.reports import store_pictures, table_result
from nvtrader_pipelines.research.search_history import search_trials
from nvtrader_pipelines.runs.run_tables import join_warnings, walk_forward_runs
from nvtrader_pipelines.scoreboard.trial_history import trial_curves, trial_runs
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.tables import EVALUATIONS, RATIO_CURVE
from nvtrader_pipelines.storage.views.published_file import read_query
from nvtrader_pipelines.storage.views.view_definitions import view_body


@dg.asset(
    key=["evaluation", "sharpe_ratio_curve"],
    group_name="evaluation",
    kinds={"iceberg", "duckdb"},
    deps=[all_partitions(EVALUATION_KEY), TRIALS_KEY],
    code_version="3",
)
def sharpe_ratio_curve(store: dg.ResourceParam[Store], duckdb: DuckDBResource) -> dg.MaterializeResult:
    """Sharpe ratio, deflated Sharpe ratio, rank and maximum drawdown per completed run and search trial."""
    with duckdb.get_connection() as connection:
        verdicts = read_query(connection, view_body(store.tables, EVALUATIONS))
    runs, trials = walk_forward_runs(store), trial_runs(store)
    curves, calendars = trial_curves(store, trials), store.read_calendars()
    curve = rank_results(runs, verdicts, trials, curves, search_trials(store), calendars)
    store.tables.replace(RATIO_CURVE, curve, {})
    figures = {"ratio_curve": ratio_curve_figure(curve, note=join_warnings(runs))}
    return table_result(store, RATIO_CURVE, len(curve), store_pictures(store.home, "sharpe_ratio_curve", figures))
