"""Rank information coefficient: rank correlation of a feature with the returns after the next fill."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nvtrader_pipelines.envs.fill_timing import resolve_fill
from nvtrader_pipelines.evaluation.sharpe.error import newey_west_lags
from nvtrader_pipelines.evaluation.statistics import MIN_ANNUALIZED, varies
from nvtrader_pipelines.market.features.cross_section import centered_ranks
from nvtrader_pipelines.market.panel import MarketPanel

HORIZON = 5  # sessions from one fill to the other
MIN_NAMES = 3  # of a session's correlation
MIN_SESSIONS = MIN_ANNUALIZED  # of a mean correlation


@dataclass(frozen=True)
class RankIc:
    """Mean rank correlation of a feature with later returns, and the evidence that it is not 0."""

    n_sessions: int  # with a correlation
    mean_ic: float | None  # None: undefined
    p_value: float  # two-sided; 1 where the mean is undefined
    note: str = ""  # why the mean is undefined


def rank_ic(values: NDArray[np.float64], panel: MarketPanel) -> RankIc:
    """Mean rank correlation of a feature (T, N), NaN where unknown, with returns of eligible names, and its p value.

    The returns of neighboring sessions overlap, so the error is that of Newey & West (1987), with `newey_west_lags` and
    at least one lag less than the horizon.

    Source: Grinold & Kahn (2000) on the information coefficient.
    """
    correlations = session_ics(values, panel)
    defined = correlations[~np.isnan(correlations)]
    n = len(defined)
    if n < MIN_SESSIONS:
        return RankIc(n, None, 1.0, f"needs {MIN_SESSIONS} sessions in which it and returns differ, but has {n}")
    if not varies(defined):
        return RankIc(n, None, 1.0, f"needs correlations that vary, but all {n} are {defined[0]:.6g}")
    import statsmodels.api as sm  # it takes a second to import

    lags = max(HORIZON - 1, newey_west_lags(n))
    fitted = sm.OLS(defined, np.ones(n)).fit(cov_type="HAC", cov_kwds={"maxlags": lags})
    return RankIc(n, float(fitted.params[0]), float(fitted.pvalues[0]))


def session_ics(values: NDArray[np.float64], panel: MarketPanel) -> NDArray[np.float64]:
    """Rank correlation (Spearman) of each session, (T,); NaN with fewer than three names, or where either is equal."""
    later = returns_after_fill(panel)
    is_used = panel.eligible & ~np.isnan(values) & ~np.isnan(later)
    is_used &= is_used.sum(axis=1, keepdims=True) >= MIN_NAMES
    ranks, outcomes = (np.nan_to_num(centered_ranks(np.where(is_used, array, np.nan))) for array in (values, later))
    spread = np.sqrt((ranks**2).sum(axis=1) * (outcomes**2).sum(axis=1))  # ranks have the mean 0
    return np.where(spread > 0.0, (ranks * outcomes).sum(axis=1) / np.where(spread > 0.0, spread, 1.0), np.nan)


def returns_after_fill(panel: MarketPanel) -> NDArray[np.float64]:
    """Return from the fill of each session's decision over the horizon, (T, N); NaN where it ends after the market.

    Fills are at the next open, or at the next close of a market without opens.
    """
    closes = np.cumprod(1.0 + panel.close_returns, axis=0)
    fills = closes[1:]
    if panel.overnight_returns is not None and resolve_fill("next_open", panel) == "next_open":
        fills = closes[:-1] * (1.0 + panel.overnight_returns[1:])
    returns = np.full(closes.shape, np.nan)
    first, last = fills[:-HORIZON], fills[HORIZON:]
    returns[: len(last)] = np.where(first > 0.0, last, np.nan) / np.where(first > 0.0, first, 1.0) - 1.0
    return returns
