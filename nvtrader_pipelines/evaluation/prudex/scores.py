"""Scores from 0 to 100, where the market average has 50, and the share of markets or windows ahead of it."""

from collections.abc import Sequence

import numpy as np
import polars as pl
from numpy.typing import NDArray

from nvtrader_pipelines.components.arrays import takes_arrays
from nvtrader_pipelines.evaluation.prudex.measures import STATISTICS
from nvtrader_pipelines.evaluation.statistics import NO_SPREAD, UndefinedStatisticError

AVERAGE = 50.0  # of the market average
MIN_GROUPS = 2  # a single market or window does not generalize


def with_scores(rows: pl.DataFrame, task: Sequence[str]) -> pl.DataFrame:
    """Add `score`: 50 at the market average, 0 or 100 for the account farthest from it.

    score = 50 (1 + d / max |d|), with d = value - market, or market - value where lower is better, and the maximum
    over all accounts of the task and statistic. If no account differs from the market average, all have 50. Rows
    without a value or a market average (column market), and unscored statistics, have null. The columns of `task` group
    comparable accounts.
    """
    group = [*task, "statistic"]
    kinds = pl.DataFrame(
        [
            (statistic.name, 1.0 if statistic.higher_is_better else -1.0)
            for statistic in STATISTICS.values()
            if statistic.scored
        ],
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


@takes_arrays
def share_ahead(values: NDArray[np.float64], market: NDArray[np.float64]) -> float:
    """Share of groups (markets or windows) with an account above the market average; ties count half.

    Both arrays have a value per group (n,); higher is better.

    Raises:
        ValueError: if the lengths differ or a number is not finite.
        UndefinedStatisticError: if there are fewer than two groups.
    """
    if values.shape != market.shape or values.ndim != 1 or not np.isfinite([values, market]).all():
        raise ValueError(f"share of groups: needs two finite arrays (n,), got {values.shape} and {market.shape}")
    if len(values) < MIN_GROUPS:
        raise UndefinedStatisticError(f"too few to compare: {len(values)} of at least {MIN_GROUPS}")
    tied = np.abs(values - market) <= NO_SPREAD * np.maximum(np.abs(values), np.abs(market))
    return float(np.where(tied, 0.5, values > market).mean())
