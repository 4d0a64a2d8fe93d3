"""Scores from 0 to 100, where the market average has 50."""

from collections.abc import Sequence

import polars as pl

from nvtrader_pipelines.evaluation.prudex.measures import STATISTICS
from nvtrader_pipelines.evaluation.statistics import NO_SPREAD

AVERAGE = 50.0  # of the market average


def with_scores(rows: pl.DataFrame, task: Sequence[str]) -> pl.DataFrame:
    """Add `score`: 50 at the market average, 0 or 100 for the account farthest from it.

    score = 50 (1 + d / max |d|), with d = value - market, or market - value where lower is better, and the maximum
    over all accounts of the task and statistic. If no account differs from the market average, all have 50. Rows
    without a value or a market average (column market), and unscored statistics, have null. The columns of `task` group
    comparable accounts.
    """
    group = [*task, "statistic"]
    kinds = pl.DataFrame(
        [(each.name, 1.0 if each.higher_is_better else -1.0) for each in STATISTICS.values() if each.scored],
        schema={"statistic": pl.String, "sign": pl.Float64},
        orient="row",
    )
    size = pl.max_horizontal(pl.col("value").abs(), pl.col("market").abs()).max().over(group)
    widest = pl.col("deviation").abs().max().over(group)
    alike = widest <= NO_SPREAD * size
    score = pl.when(alike).then(pl.lit(AVERAGE)).otherwise(AVERAGE * (1.0 + pl.col("deviation") / widest))
    return (
        rows.join(kinds, on="statistic", how="left", maintain_order="left")
        .with_columns(deviation=pl.col("sign") * (pl.col("value") - pl.col("market")))
        .with_columns(score=pl.when(pl.col("deviation").is_not_null()).then(score))
        .drop("sign", "deviation")
    )
