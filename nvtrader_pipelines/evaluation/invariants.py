"""Truth checks on recorded runs: each returns the rows that break an identity, so an empty frame is the truth."""

from collections.abc import Sequence

import numpy as np
import polars as pl

from nvtrader_pipelines.market.calendar import all_sessions

TOLERANCE = 1e-9
STEP = ["policy", "step"]


def off_simplex(action_logs: pl.DataFrame) -> pl.DataFrame:
    """Steps whose target or executed weights do not sum to one, or are negative."""
    weights = ("target_weights", "executed_weights")
    off = [(pl.col(name).list.sum() - 1.0).abs() > TOLERANCE for name in weights]
    negative = [pl.col(name).list.min() < -TOLERANCE for name in weights]
    return action_logs.filter(pl.any_horizontal(*off, *negative)).select(*STEP, "session", *weights)


def reward_gaps(trajectories: pl.DataFrame, reward_decomposition: pl.DataFrame) -> pl.DataFrame:
    """Steps of a test whose terms do not sum to the reward, or that lack either."""
    summed = reward_decomposition.group_by(STEP).agg(pl.col("contribution").sum().alias("terms"))
    tested = trajectories.filter(pl.col("phase") != "train")  # a sampled episode has its terms in `info`
    joined = tested.select(*STEP, "session", "reward").join(summed, on=STEP, how="full", coalesce=True)
    gap = (pl.col("reward") - pl.col("terms")).abs()
    return joined.filter(gap.is_null() | gap.is_nan() | (gap > TOLERANCE))


def equity_gaps(equity_curves: pl.DataFrame) -> pl.DataFrame:
    """Sessions whose equity is not the product of the net growth so far (relative to it)."""
    grown = (
        equity_curves.sort("policy", "session")
        .with_columns((1.0 + pl.col("net_return")).cum_prod().over("policy").alias("product"))
        .with_columns((pl.col("equity") / pl.col("product") - 1.0).abs().alias("gap"))
    )
    off = pl.col("gap").is_null() | pl.col("gap").is_nan() | (pl.col("gap") > TOLERANCE)
    return grown.filter(off).select("policy", "session", "equity", "product", "gap")


def training_leaks(
    training: pl.DataFrame, equity_curves: pl.DataFrame, purge_size: int = 0, embargo_size: int = 0
) -> pl.DataFrame:
    """Folds that trained on a tested session, or closer to one than purge and embargo allow.

    What is decided last in a fold is held beyond it, for as long as a purge; so after the last tested session no more
    than the embargo is certain.

    Args:
        training: fold, train_first and train_last (dates), one row per stretch that a policy was trained on.
        equity_curves: fold and session of every tested session.
        purge_size: sessions between a stretch and the tests after it.
        embargo_size: sessions between tests and a stretch after them.
    """
    day = pl.col("session")
    tested = equity_curves.group_by("fold").agg(day.min().alias("test_first"), day.max().alias("test_last"))
    joined = training.join(tested, on="fold", how="left")
    at = {name: np.searchsorted(all_sessions(), joined[name].to_numpy()) for name in joined.columns if name != "fold"}
    apart = (at["train_last"] + purge_size < at["test_first"]) | (at["test_last"] + embargo_size < at["train_first"])
    return joined.filter(pl.col("test_first").is_null() | pl.lit(~apart))


def outside_unit_interval(rows: pl.DataFrame, columns: Sequence[str]) -> pl.DataFrame:
    """Rows in which a probability is below 0 or above 1; unknown ones are null."""
    return rows.filter(pl.any_horizontal(~pl.col(name).is_between(0.0, 1.0) for name in columns))


def unlike_rivals(scoreboard: pl.DataFrame) -> pl.DataFrame:
    """Rows of contests whose entrants did not meet on one market and one window, or whose ranks are not by Sharpe.

    Args:
        scoreboard: contest, source, first_session, last_session, n_sessions, rank, sharpe; an entrant that was not
            judged has no contest, no rank and no Sharpe ratio.
    """
    window = pl.struct("source", "first_session", "last_session", "n_sessions")
    ranked = pl.col("sharpe").rank("min", descending=True).over("contest")
    like = pl.col("contest").is_null() | (window.n_unique().over("contest") == 1)
    in_order = pl.col("rank").cast(pl.Float64).eq_missing(ranked.cast(pl.Float64))
    return scoreboard.filter(~like | ~in_order | (pl.col("contest").is_null() & pl.col("rank").is_not_null()))
