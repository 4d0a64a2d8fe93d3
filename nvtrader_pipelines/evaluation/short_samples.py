"""Masks for annualized figures of short samples, and for ranks by these figures."""

from collections.abc import Iterable, Mapping
from dataclasses import astuple
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from nvtrader_pipelines.evaluation.account_statistics import cost_per_year, turnover_per_year
from nvtrader_pipelines.evaluation.intervals import lo_interval
from nvtrader_pipelines.evaluation.statistics import (
    MIN_ANNUALIZED,
    UndefinedStatisticError,
    max_drawdown,
    sharpe_ratio,
    total_return,
)

_BOUNDED = ("sharpe", "sharpe_difference", "information_ratio")  # figures with an interval
ANNUALIZED = (
    *(f"{name}{bound}" for name in _BOUNDED for bound in ("", "_low", "_high")),
    *("sharpe_error", "lo_low", "lo_high", "iqm_sharpe", "iqm_low", "iqm_high", "previous_sharpe"),
    *("rank", "previous_rank", "deflated_information_ratio", "alpha_per_year"),
    *("cagr", "volatility", "sortino", "calmar", "turnover_per_year", "cost_per_year"),
)


def is_short(row: Mapping[str, Any]) -> bool:
    """Whether a row has too few sessions for annualized figures."""
    return bool(short_note([row.get("n_sessions")]))


def sharpe_interval(name: str, returns: NDArray[np.float64], periods_per_year: int) -> dict[str, float | None]:
    """Annual Sharpe ratio with its 95 % interval as `name`, `name_low` and `name_high`; null for a short sample.

    Constant returns have no interval.
    """
    names = (name, f"{name}_low", f"{name}_high")
    if len(returns) < MIN_ANNUALIZED:
        return dict.fromkeys(names)
    try:
        return dict(zip(names, astuple(lo_interval(returns, periods_per_year)), strict=True))
    except UndefinedStatisticError:
        return dict.fromkeys(names) | {name: sharpe_ratio(returns, periods_per_year)}


def account_figures(sessions: pl.DataFrame, periods_per_year: int) -> dict[str, Any]:
    """Statistics of an account's net returns, turnover and costs; annualized ones are null for a short sample."""
    returns, turnover, cost = (sessions[name].to_numpy() for name in ("net_return", "turnover", "cost"))
    is_long = len(returns) >= MIN_ANNUALIZED
    return {
        "total_return": total_return(returns),
        **sharpe_interval("sharpe", returns, periods_per_year),
        "max_drawdown": max_drawdown(returns),
        "turnover_per_year": turnover_per_year(turnover, periods_per_year) if is_long else None,
        "cost_per_year": cost_per_year(cost, periods_per_year) if is_long else None,
    }


def mask_short(rows: pl.DataFrame) -> pl.DataFrame:
    """Set annualized figures and ranks to null in rows with too few sessions."""
    is_long = pl.col("n_sessions").is_null() | (pl.col("n_sessions") >= MIN_ANNUALIZED)
    shown = [name for name in ANNUALIZED if name in rows.columns]
    return rows.with_columns(pl.when(is_long).then(name).alias(name) for name in shown)


def short_note(counts: Iterable[int | None]) -> str:
    """Note on samples too short for annualized figures, by their sessions; empty if none."""
    short = sorted({n for n in counts if n is not None and n < MIN_ANNUALIZED})
    if not short:
        return ""
    span = f"{short[0]} to {short[-1]}" if len(short) > 1 else f"{short[0]}"
    return f"too short for annualized figures: {span} of {MIN_ANNUALIZED} sessions"


IS_RANKED = pl.col("rank").is_not_null() | (  # the rank of a short sample is masked
    pl.col("max_drawdown").is_not_null() & (pl.col("n_sessions") < MIN_ANNUALIZED)
)
