"""Scoreboard of the last update, and the history of an entrant's scorecards."""

import json

import polars as pl

from nvtrader_pipelines.components.explanation import suggest
from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.tables import SCOREBOARD, SCORECARDS

LATEST = "standing.json"
OPENINGS = ("openings", "baseline_openings")
SAME_SHARPE = 1e-9
NOT_SCORED = (
    "there is no scoreboard yet; `nvtrader materialize` trains and scores every experiment, `nvtrader scoreboard "
    "update` scores existing runs and the files of data/entrants"
)


def read_scoreboard(store: Store) -> pl.DataFrame:
    """Read the scoreboard as last written.

    Raises:
        StorageError: if there is no scoreboard.
    """
    board = store.tables.read(SCOREBOARD)
    if board.is_empty():
        raise StorageError(NOT_SCORED)
    return board.sort("source", "rank", "entrant", nulls_last=True)


def with_openings(store: Store, verdicts: pl.DataFrame) -> pl.DataFrame:
    """Add `openings` and `baseline_openings` of the scoreboard to rows of `evaluation.walk_forward_evaluation`.

    They are null in periods that the scoreboard does not score, and for accounts that it does not have.
    """
    board = store.tables.read(
        SCOREBOARD, columns=["source", "entrant", "first_session", "last_session", "sharpe", "openings"]
    )
    known = board.drop_nulls("openings").unique(["entrant", "first_session", "last_session"])
    window = ["first_session", "last_session"]
    own = known.rename({"entrant": "policy", "sharpe": "scored"}).drop("source")
    best = known.select(
        *window, pl.col("entrant").alias("best_baseline"), pl.col("openings").alias("baseline_openings")
    )
    rows = verdicts.join(own, on=["policy", *window], how="left", maintain_order="left")
    rows = rows.join(best, on=["best_baseline", *window], how="left", maintain_order="left")
    is_scored = (pl.col("sharpe") - pl.col("scored")).abs() <= SAME_SHARPE  # other costs or another account of the name
    return rows.with_columns(pl.when(is_scored).then(name).alias(name) for name in OPENINGS).drop("scored")


def read_history(store: Store, entrant: str) -> pl.DataFrame:
    """Read every distinct scorecard row of one entrant, newest first.

    Raises:
        StorageError: if there is no entrant of that name.
    """
    rows = store.tables.read(SCORECARDS)
    names = rows["entrant"].unique().sort().to_list()
    if not names:
        raise StorageError(NOT_SCORED)
    if entrant not in names:
        raise StorageError(f"there is no entrant {entrant!r}; there are {', '.join(names)}{suggest(entrant, names)}")
    return rows.filter(pl.col("entrant") == entrant).drop("document").sort("judged_at", descending=True)


def read_latest(home: Home) -> dict[str, str]:
    """Read the scorecard digest of every entrant as of the last scoreboard update.

    Raises:
        StorageError: if nothing was scored yet.
    """
    path = home.scorecards / LATEST
    if not path.exists():
        raise StorageError(NOT_SCORED)
    return json.loads(path.read_bytes())
