"""Ranking and scorings of entrants, without annualized figures of short samples."""

import polars as pl

from nvtrader_pipelines.evaluation.statistics import MIN_ANNUALIZED
from nvtrader_pipelines.scoreboard.board import read_scoreboard
from nvtrader_pipelines.service.documents.document import row_model
from nvtrader_pipelines.service.documents.short_samples import mask_short
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.tables import SCOREBOARD, SCORECARDS

IS_RANKED = pl.col("rank").is_not_null() | (  # the rank of a short sample is masked
    pl.col("max_drawdown").is_not_null() & (pl.col("n_sessions") < MIN_ANNUALIZED)
)


class RankedEntrant(row_model(SCOREBOARD.schema)):
    """Entrant of a contest; annualized figures are null for a short sample."""


class ScoredEntrant(row_model(SCORECARDS.schema.without("document"))):
    """Scoring of an entrant; annualized figures are null for a short sample."""


def read_ranking(store: Store) -> pl.DataFrame:
    """Read the scoreboard as of the last judgement, a row per entrant, by contest.

    Raises:
        NotFoundError: if nothing was judged yet.
    """
    return mask_short(read_scoreboard(store))
