"""The scoreboard: of each contest the entrants by net Sharpe ratio, like with like, with where they stood before."""

from collections.abc import Mapping

import polars as pl

from nvtrader_pipelines.storage.tables import SCOREBOARD

_KEY = ["contest", "entrant"]


def scoreboard(history: pl.DataFrame, standing: Mapping[str, str]) -> pl.DataFrame:
    """Where everybody of the last judgement stands (`SCOREBOARD`), the best first; who was not judged comes last.

    Ranked is the net Sharpe ratio, within a contest only: nothing is compared that had other sessions, costs, fills or
    leverage. A score of 0 is better than a negative one; without a score there is no rank, and the note says why.
    Equal scores share a rank. The previous rank and score are those before the contest's last new judgement, of those
    who take part now: who left moves nobody.

    Args:
        history: rows of `SCORECARDS`, all ever written.
        standing: entrant to the digest of its card, for those of the last judgement.
    """
    wanted = pl.DataFrame(
        {"entrant": list(standing), "digest": list(standing.values())},
        schema={"entrant": pl.String, "digest": pl.String},
    )
    now = _last_of_each(history.join(wanted, on=["entrant", "digest"], how="semi"))
    judged = now.filter(pl.col("contest").is_not_null())
    newest = judged.group_by("contest").agg(newest=pl.col("judged_at").max())
    present = history.join(wanted, on="entrant", how="semi")
    older = present.join(newest, on="contest").filter(pl.col("judged_at") < pl.col("newest"))
    before = _ranked(_last_of_each(older)).select(*_KEY, previous_rank="rank", previous_sharpe="sharpe")
    rows = _ranked(now).join(before, on=_KEY, how="left")
    return rows.sort("source", "rank", "entrant", nulls_last=True).select(
        pl.col(name).cast(kind) for name, kind in SCOREBOARD.schema.items()
    )


def _last_of_each(rows: pl.DataFrame) -> pl.DataFrame:
    """The newest row of each entrant in each contest."""
    return rows.sort("judged_at", maintain_order=True).unique(_KEY, keep="last", maintain_order=True)


def _ranked(rows: pl.DataFrame) -> pl.DataFrame:
    """The rows with their rank in their contest."""
    return rows.with_columns(rank=pl.col("sharpe").rank("min", descending=True).over("contest").cast(pl.Int32))
