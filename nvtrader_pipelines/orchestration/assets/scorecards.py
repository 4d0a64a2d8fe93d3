"""Scorecards of all entrants: policies, baselines, weights files and foreign networks."""

from datetime import UTC, datetime

import dagster as dg

from nvtrader_pipelines.orchestration.assets.evaluation import EVALUATION_KEY
from nvtrader_pipelines.orchestration.partitions import all_partitions
from nvtrader_pipelines.orchestration.reports import table_result
from nvtrader_pipelines.scoreboard.cards import score_all
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.tables import SCORECARDS

SCORECARDS_KEY = dg.AssetKey(["evaluation", "scorecards"])


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
