"""Scoreboard: entrants of each contest by Sharpe ratio."""

import dagster as dg

from nvtrader_pipelines.figures import scoreboard_figures
from nvtrader_pipelines.orchestration.assets.scorecards import SCORECARDS_KEY
from nvtrader_pipelines.orchestration.reports import markdown_table, store_pictures, table_result
from nvtrader_pipelines.scoreboard.cards import update_scoreboard
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.tables import SCOREBOARD


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
