"""Invariants of recorded runs: each function returns the rows that violate one."""

from collections.abc import Sequence

import numpy as np
import polars as pl

from nvtrader_pipelines.market.calendar import TradingCalendar
from nvtrader_pipelines.portfolio.pipeline import RiskLimits

TOLERANCE = 1e-9
TINY = 1e-300  # equity of an account that lost all, to divide by
STEP = ["policy", "step"]


def off_portfolio(action_logs: pl.DataFrame, limits: RiskLimits) -> pl.DataFrame:
    """Steps whose weights do not sum to one, or are negative where the limits allow no debt or short position.

    Targets of policies and ensembles may also not exceed the limit of gross.
    """
    weights = ("target_weights", "executed_weights")
    off = [(pl.col(name).list.sum() - 1.0).abs() > TOLERANCE for name in weights]
    if limits.max_short == 0.0:
        off += [_names(name).list.min() < -TOLERANCE for name in weights]
    if limits.max_gross <= 1.0:
        off += [pl.col(name).list.last() < -TOLERANCE for name in weights]
    gross = _names("target_weights").list.eval(pl.element().abs()).list.sum()
    off.append((pl.col("kind") != "baseline") & (gross > limits.max_gross + TOLERANCE))
    return action_logs.filter(pl.any_horizontal(off)).select(*STEP, "session", *weights)


def _names(column: str) -> pl.Expr:
    """Weights without cash, which is last."""
    return pl.col(column).list.slice(0, pl.col(column).list.len() - 1)


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
        .with_columns(((pl.col("equity") - pl.col("product")).abs() / pl.max_horizontal("product", TINY)).alias("gap"))
    )
    off = pl.col("gap").is_null() | pl.col("gap").is_nan() | (pl.col("gap") > TOLERANCE)
    return grown.filter(off).select("policy", "session", "equity", "product", "gap")


def training_leaks(
    training: pl.DataFrame, equity_curves: pl.DataFrame, purge_size: int, embargo_size: int, calendar: TradingCalendar
) -> pl.DataFrame:
    """Training spans that overlap tested sessions, or are closer than purge and embargo allow.

    The last decision of a fold is held beyond it for up to a purge, so after the tests only the embargo is checked.
    Training has fold, train_first and train_last (dates) of each span, the curves have fold and session.
    """
    day = pl.col("session")
    tested = equity_curves.group_by("fold").agg(day.min().alias("test_first"), day.max().alias("test_last"))
    joined = training.join(tested, on="fold", how="left")
    days, dated = calendar.all_sessions(), [name for name in joined.columns if name != "fold"]
    at = {name: np.searchsorted(days, joined[name].to_numpy()) for name in dated}
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
