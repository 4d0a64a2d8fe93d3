"""Invariants of recorded runs: each function returns the rows that violate one."""

from collections.abc import Sequence

import numpy as np
import polars as pl

from nvtrader_pipelines.market.calendar import all_sessions

TOLERANCE = 1e-9
STEP = ["policy", "step"]


def off_simplex(action_logs: pl.DataFrame) -> pl.DataFrame:
    """Steps whose target or executed weights are negative or do not sum to one."""
    weights = ("target_weights", "executed_weights")
    off = [(pl.col(name).list.sum() - 1.0).abs() > TOLERANCE for name in weights]
    negative = [pl.col(name).list.min() < -TOLERANCE for name in weights]
    return action_logs.filter(pl.any_horizontal(*off, *negative)).select(*STEP, "session", *weights)


def reward_gaps(trajectories: pl.DataFrame, reward_decomposition: pl.DataFrame) -> pl.DataFrame:
    """Test steps whose reward terms do not sum to the reward, or are missing."""
    summed = reward_decomposition.group_by(STEP).agg(pl.col("contribution").sum().alias("terms"))
    tested = trajectories.filter(pl.col("phase") != "train")  # training episodes have their terms in `info`
    joined = tested.select(*STEP, "session", "reward").join(summed, on=STEP, how="full", coalesce=True)
    gap = (pl.col("reward") - pl.col("terms")).abs()
    return joined.filter(gap.is_null() | gap.is_nan() | (gap > TOLERANCE))


def equity_gaps(equity_curves: pl.DataFrame) -> pl.DataFrame:
    """Sessions whose equity differs from the compounded net returns, relative to them."""
    grown = (
        equity_curves.sort("policy", "session")
        .with_columns((1.0 + pl.col("net_return")).cum_prod().over("policy").alias("product"))
        .with_columns((pl.col("equity") / pl.col("product") - 1.0).abs().alias("gap"))
    )
    off = pl.col("gap").is_null() | pl.col("gap").is_nan() | (pl.col("gap") > TOLERANCE)
    return grown.filter(off).select("policy", "session", "equity", "product", "gap")


def training_leaks(
    training: pl.DataFrame, equity_curves: pl.DataFrame, purge_size: int, embargo_size: int
) -> pl.DataFrame:
    """Training spans that overlap tested sessions, or are closer than purge and embargo allow.

    The last decision of a fold is held beyond it for up to a purge, so after the tests only the embargo is checked.
    Training has fold, train_first and train_last (dates) of each span, the curves have fold and session.
    """
    day = pl.col("session")
    tested = equity_curves.group_by("fold").agg(day.min().alias("test_first"), day.max().alias("test_last"))
    joined = training.join(tested, on="fold", how="left")
    at = {name: np.searchsorted(all_sessions(), joined[name].to_numpy()) for name in joined.columns if name != "fold"}
    apart = (at["train_last"] + purge_size < at["test_first"]) | (at["test_last"] + embargo_size < at["train_first"])
    return joined.filter(pl.col("test_first").is_null() | pl.lit(~apart))


def outside_unit_interval(rows: pl.DataFrame, columns: Sequence[str]) -> pl.DataFrame:
    """Rows with a probability below 0 or above 1; nulls are allowed."""
    return rows.filter(pl.any_horizontal(~pl.col(name).is_between(0.0, 1.0) for name in columns))


def inconsistent_entrants(scoreboard: pl.DataFrame) -> pl.DataFrame:
    """Rows of contests with different markets or windows, or with ranks that do not follow Sharpe ratios.

    Args:
        scoreboard: contest, source, first_session, last_session, n_sessions, rank, sharpe; an entrant that was not
            scored has null contest, rank and Sharpe ratio.
    """
    window = pl.struct("source", "first_session", "last_session", "n_sessions")
    ranked = pl.col("sharpe").rank("min", descending=True).over("contest")
    like = pl.col("contest").is_null() | (window.n_unique().over("contest") == 1)
    in_order = pl.col("rank").cast(pl.Float64).eq_missing(ranked.cast(pl.Float64))
    return scoreboard.filter(~like | ~in_order | (pl.col("contest").is_null() & pl.col("rank").is_not_null()))
