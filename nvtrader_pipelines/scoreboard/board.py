"""Scoreboard of the last update, and the history of an entrant's scorecards."""

import json

import polars as pl

from nvtrader_pipelines.components.document import row_model
from nvtrader_pipelines.components.explanation import suggest
from nvtrader_pipelines.evaluation.short_samples import mask_short
from nvtrader_pipelines.storage.errors import NotFoundError
from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.read_sources import note_read
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.tables import SCOREBOARD, SCORECARDS

LATEST = "standing.json"
NOT_SCORED = (
    "there is no scoreboard yet; `nvtrader materialize` trains and scores every experiment, `nvtrader scoreboard "
    "update` scores existing runs and the files of data/entrants"
)


def read_scoreboard(store: Store) -> pl.DataFrame:
    """Read the scoreboard as last written.

    Raises:
        NotFoundError: if there is no scoreboard.
    """
    board = store.tables.read(SCOREBOARD)
    if board.is_empty():
        raise NotFoundError(NOT_SCORED)
    return board.sort("source", "rank", "entrant", nulls_last=True)


def read_history(store: Store, entrant: str) -> pl.DataFrame:
    """Read every distinct scorecard row of one entrant, newest first.

    Raises:
        NotFoundError: if there is no entrant of that name.
    """
    rows = store.tables.read(SCORECARDS)
    names = rows["entrant"].unique().sort().to_list()
    if not names:
        raise NotFoundError(NOT_SCORED)
    if entrant not in names:
        raise NotFoundError(f"there is no entrant {entrant!r}; there are {', '.join(names)}{suggest(entrant, names)}")
    return rows.filter(pl.col("entrant") == entrant).drop("document").sort("judged_at", descending=True)


def read_latest(home: Home) -> dict[str, str]:
    """Read the scorecard digest of every entrant as of the last scoreboard update.

    Raises:
        NotFoundError: if nothing was scored yet.
    """
    path = home.scorecards / LATEST
    note_read(path)
    if not path.exists():
        raise NotFoundError(NOT_SCORED)
    return json.loads(path.read_bytes())


def read_ranking(store: Store) -> pl.DataFrame:
    """Read the scoreboard as of the last judgement, a row per entrant, by contest.

    Raises:
        NotFoundError: if nothing was judged yet.
    """
    return mask_short(read_scoreboard(store))


class RankedEntrant(row_model(SCOREBOARD.schema)):
    """Entrant of a contest; annualized figures are null for a short sample."""


class ScoredEntrant(row_model(SCORECARDS.schema.without("document"))):
    """Scoring of an entrant; annualized figures are null for a short sample."""
