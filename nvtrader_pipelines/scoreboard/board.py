"""Scoreboard of the last update, and the history of an entrant's scorecards."""

import json

import polars as pl

from nvtrader_pipelines.components.explanation import suggest
from nvtrader_pipelines.storage.errors import NotFoundError
from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.tables import SCOREBOARD, SCORECARDS

LATEST = "standing.json"
SAME_SHARPE = 1e-9
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


def with_openings(store: Store, verdicts: pl.DataFrame) -> pl.DataFrame:
    """Add `openings` and `baseline_openings` of the scoreboard to rows of one or more verdicts.

    They are null in periods that the scoreboard does not score. An account is that of an entrant if name, sessions and
    Sharpe ratio agree; names of baselines may have a suffix there.
    """
    window = ["first_session", "last_session"]
    board = store.tables.read(SCOREBOARD, columns=[*window, "entrant", "sharpe", "openings"]).drop_nulls("openings")
    rows = verdicts.with_row_index("row")
    pairs = rows.select("row", "policy", "sharpe", *window).join(board, on=window, suffix="_scored")
    is_same = (pl.col("sharpe") - pl.col("sharpe_scored")).abs() <= SAME_SHARPE
    is_named = (pl.col("entrant") == pl.col("policy")) | pl.col("entrant").str.starts_with(pl.col("policy") + "-")
    matched = pairs.filter(is_same, is_named).unique("row").select("row", "openings")
    rows = rows.join(matched, on="row", how="left", maintain_order="left").drop("row")
    run = [name for name in ("run_id",) if name in rows.columns]
    baselines = rows.filter(kind="baseline").select(
        "period", *window, *run, pl.col("policy").alias("best_baseline"), pl.col("openings").alias("baseline_openings")
    )
    keys = ["best_baseline", "period", *window, *run]
    return rows.join(baselines.unique(keys), on=keys, how="left", maintain_order="left", nulls_equal=True)


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
    if not path.exists():
        raise NotFoundError(NOT_SCORED)
    return json.loads(path.read_bytes())
