"""Ranking of entrants by net Sharpe ratio within each contest, with their previous rank."""

from collections.abc import Mapping

import polars as pl

from nvtrader_pipelines.market.calendar import NEW_YORK
from nvtrader_pipelines.storage.tables import SCOREBOARD

_KEY = ["contest", "entrant"]


def rank_entrants(history: pl.DataFrame, latest: Mapping[str, str]) -> pl.DataFrame:
    """Rank the entrants of the last update by net Sharpe ratio, best first; refused entrants come last.

    Entrants are ranked within a contest only: sessions, costs, fills and leverage are equal. Equal Sharpe ratios share
    a rank; an entrant without one has no rank, and its note gives the reason. The previous rank and Sharpe ratio are
    those before the contest's last new scorecard, among the entrants of now: one that left changes no rank.

    Args:
        history: all rows of `SCORECARDS`.
        latest: entrant to the digest of its card in the last update.
    """
    wanted = pl.DataFrame(
        {"entrant": list(latest), "digest": list(latest.values())}, schema={"entrant": pl.String, "digest": pl.String}
    )
    now = _newest_rows(history.join(wanted, on=["entrant", "digest"], how="semi"))
    judged = now.filter(pl.col("contest").is_not_null())
    newest = judged.group_by("contest").agg(newest=pl.col("judged_at").max())
    present = history.join(wanted, on="entrant", how="semi")
    older = present.join(newest, on="contest").filter(pl.col("judged_at") < pl.col("newest"))
    before = _with_rank(_newest_rows(older)).select(*_KEY, previous_rank="rank", previous_sharpe="sharpe")
    # cards of New York that have not changed since have no calendar
    calendar = pl.when(pl.col("contest").is_not_null()).then(pl.col("calendar").fill_null(NEW_YORK.name))
    rows = _with_rank(now).join(before, on=_KEY, how="left").with_columns(calendar=calendar)
    return rows.sort("source", "rank", "entrant", nulls_last=True).select(
        pl.col(name).cast(kind) for name, kind in SCOREBOARD.schema.items()
    )


def _newest_rows(rows: pl.DataFrame) -> pl.DataFrame:
    """Select the newest row of each entrant in each contest."""
    return rows.sort("judged_at", maintain_order=True).unique(_KEY, keep="last", maintain_order=True)


def _with_rank(rows: pl.DataFrame) -> pl.DataFrame:
    """Add the rank within the contest."""
    return rows.with_columns(rank=pl.col("sharpe").rank("min", descending=True).over("contest").cast(pl.Int32))
