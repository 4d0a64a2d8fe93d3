"""Results of all runs compared: scorecards, scoreboard, validation, PRUDEX, ratio curve."""

from collections.abc import Iterator
from datetime import UTC, datetime

import dagster as dg
from dagster_duckdb import DuckDBResource

from nvtrader_pipelines.evaluation.prudex import axis_scores
from nvtrader_pipelines.evaluation.sharpe.ratio_curve import sharpe_ratio_curve as rank_results
from nvtrader_pipelines.evaluation.trial_validation import Validation, headlines
from nvtrader_pipelines.figures import ratio_curve_figure, scoreboard_figures, validation_figures
from nvtrader_pipelines.orchestration.assets.autoresearch import TRIALS_KEY
from nvtrader_pipelines.orchestration.assets.evaluation import EVALUATION_KEY
from nvtrader_pipelines.orchestration.partitions import all_partitions
from nvtrader_pipelines.orchestration.reports import markdown_table, store_pictures, table_result
from nvtrader_pipelines.research.session_tables import search_trials
from nvtrader_pipelines.runs.input_digests import contest_digest
from nvtrader_pipelines.runs.run_tables import join_warnings, walk_forward_runs
from nvtrader_pipelines.scoreboard.cards import score_all, update_scoreboard
from nvtrader_pipelines.scoreboard.overall_results import pictures_of, prudex_result, validation_result
from nvtrader_pipelines.scoreboard.trial_history import trial_curves, trial_runs
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.tables import (
    EVALUATIONS,
    OVERFITTING,
    PRUDEX,
    RATIO_CURVE,
    RUNS,
    SCOREBOARD,
    SCORECARDS,
    VALIDATION,
)
from nvtrader_pipelines.storage.views.published_file import read_objects, read_query
from nvtrader_pipelines.storage.views.view_definitions import view_body

SCORECARDS_KEY = dg.AssetKey(["evaluation", "scorecards"])
DESCRIPTIONS = {
    "validation": "Every trial against zero, its best baseline and its anchor or 1/N, deflated for all trials.",
    "overfitting": "Probability that the best trial in sample ranks in the worse half out of sample (PBO).",
}


@dg.asset(
    key=["evaluation", "scoreboard"],
    group_name="evaluation",
    kinds={"iceberg", "polars"},
    deps=[SCORECARDS_KEY],
    code_version="1",
)
def scoreboard(store: dg.ResourceParam[Store]) -> dg.MaterializeResult:
    """Ranking of all entrants by Sharpe ratio within their contest, with their former ranks."""
    board = update_scoreboard(store)
    columns = ("source", "calendar", "rank", "entrant", "kind", "sharpe", "note")
    table = dg.MetadataValue.md(markdown_table(board.select(columns)))
    pictures = store_pictures(store.home, "scoreboard", scoreboard_figures(board))
    return table_result(store, SCOREBOARD, len(board), {"scoreboard": table, **pictures})


@dg.asset(
    key=SCORECARDS_KEY,
    group_name="evaluation",
    kinds={"iceberg", "markdown"},
    deps=[all_partitions(EVALUATION_KEY), ["gold", "market_panel"]],
    code_version="1",
)
def scorecards(context: dg.AssetExecutionContext, store: dg.ResourceParam[Store]) -> dg.MaterializeResult:
    """Scorecard of every entrant on the same sessions, fills, costs and leverage."""
    result = score_all(store, datetime.now(UTC), context.log.info)
    pages = {card.entrant: dg.MetadataValue.md(page) for card, page in result.pages}
    metadata = {"entrants": len(result.cards), "folder": dg.MetadataValue.path(str(store.home.scorecards)), **pages}
    return table_result(store, SCORECARDS, result.n_new, metadata)


@dg.multi_asset(
    specs=[
        dg.AssetSpec(
            ["evaluation", name],
            deps=[all_partitions(EVALUATION_KEY)],
            description=description,
            group_name="evaluation",
            kinds={"iceberg", "polars"},
            code_version="1",
        )
        for name, description in DESCRIPTIONS.items()
    ],
    name="validate",
)
def validation(store: dg.ResourceParam[Store]) -> Iterator[dg.MaterializeResult]:
    """Deflate every trial for all trials on its market; estimate backtest overfitting."""
    result = validation_result(store, contest_digest(store))
    judged = Validation(result.frames[VALIDATION.table], result.frames[OVERFITTING.table])
    store.tables.replace(VALIDATION, judged.trials, {})
    store.tables.replace(OVERFITTING, judged.overfitting, {})
    trials, overfitting = headlines(judged)
    note = join_warnings(store.tables.read(RUNS, columns=["warnings"]))
    figures = validation_figures(judged.trials, judged.overfitting, note=note)
    pictures = store_pictures(store.home, "validation", figures)
    metadata = {"trials": dg.MetadataValue.md(markdown_table(trials)), **pictures}
    yield table_result(store, VALIDATION, len(judged.trials), metadata)
    table = dg.MetadataValue.md(markdown_table(overfitting))
    yield table_result(store, OVERFITTING, len(judged.overfitting), {"overfitting": table, **pictures})


@dg.asset(
    key=["evaluation", "prudex"],
    group_name="evaluation",
    kinds={"iceberg", "polars"},
    deps=[
        all_partitions(EVALUATION_KEY),
        all_partitions(["rl", "equity_curves"]),
        all_partitions(["rl", "action_logs"]),
        all_partitions(["gold", "returns"]),
        all_partitions(["gold", "features"]),
    ],
    code_version="1",
    op_tags={"dagster/priority": "-1"},  # last, since another process may be computing it
)
def prudex(store: dg.ResourceParam[Store]) -> dg.MaterializeResult:
    """Scores of every experiment on the six axes of PRUDEX; equal weight scores 50."""
    result = prudex_result(store, contest_digest(store))
    rows = result.frames[PRUDEX.table]
    store.tables.replace(PRUDEX, rows, {})
    pictures = store_pictures(store.home, "prudex", pictures_of(result))
    scores = dg.MetadataValue.md(markdown_table(axis_scores(rows)))
    return table_result(store, PRUDEX, len(rows), {"scores": scores, **pictures})


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
        read_objects(connection, store.home)
        verdicts = read_query(connection, view_body(store.tables, EVALUATIONS))
    runs, trials = walk_forward_runs(store), trial_runs(store)
    curves, calendars = trial_curves(store, trials), store.read_calendars()
    curve = rank_results(runs, verdicts, trials, curves, search_trials(store), calendars)
    store.tables.replace(RATIO_CURVE, curve, {})
    figures = {"ratio_curve": ratio_curve_figure(curve, note=join_warnings(runs))}
    return table_result(store, RATIO_CURVE, len(curve), store_pictures(store.home, "sharpe_ratio_curve", figures))
