"""How one account differs from another on the same sessions, each difference with its interval."""

from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from nvtrader_pipelines.evaluation.account_statistics import exposure
from nvtrader_pipelines.evaluation.alpha import MarketModel, market_model, residual_returns
from nvtrader_pipelines.evaluation.intervals import Interval, SharpeIntervals, percentile_interval
from nvtrader_pipelines.evaluation.statistics import (
    CONFIDENCE_LEVEL,
    annual_volatility,
    expected_shortfall,
    sharpe_ratio,
)
from nvtrader_pipelines.market.calendar import NEW_YORK

FloatArray = NDArray[np.float64]
STATISTICS = ("sharpe", "volatility", "cvar", "exposure")
YEAR = NEW_YORK.periods_per_year


@dataclass(frozen=True)
class Differences:
    """Statistics of an account less those of another, with the residual return over it."""

    sharpe: Interval  # annual; a difference of Sharpe ratios, not the information ratio
    volatility: Interval  # annual, fraction
    cvar: Interval  # mean loss of the worst 5 % of sessions, fraction
    exposure: Interval  # mean weight outside cash, fraction
    information_ratio: float  # annual Sharpe ratio of the residual return
    model: MarketModel  # of the account on the other


def paired_differences(
    net_returns: FloatArray, cash: FloatArray, intervals: SharpeIntervals | None = None
) -> Differences:
    """Compare the first of two accounts with the second, by one paired bootstrap of the sessions.

    Args:
        net_returns: (n_sessions, 2), net of costs.
        cash: (n_sessions, 2), weight at the close.
        intervals: the bootstrap of the Sharpe ratios, whose draws the other statistics share.

    Raises:
        ValueError: if there are fewer than four sessions, a number is not finite, or the other account never varies.
    """
    how = intervals or SharpeIntervals()
    drawn = _draw_risks(net_returns, cash, how)
    bounds = {name: percentile_interval(values[:, 0] - values[:, 1], how.confidence_level) for name, values in drawn}
    bounds["sharpe"] = how.draw(net_returns, YEAR).difference(0, 1)
    measures = {
        "sharpe": partial(sharpe_ratio, periods_per_year=YEAR),
        "volatility": partial(annual_volatility, periods_per_year=YEAR),
        "cvar": expected_shortfall,
    }
    points = {name: measure(net_returns[:, 0]) - measure(net_returns[:, 1]) for name, measure in measures.items()}
    points["exposure"] = exposure(cash[:, 0]) - exposure(cash[:, 1])
    own, other = net_returns.T
    return Differences(
        **{name: Interval(points[name], *bounds[name]) for name in STATISTICS},
        information_ratio=sharpe_ratio(residual_returns(own, other), YEAR),
        model=market_model(own, other, YEAR),
    )


def _draw_risks(net_returns: FloatArray, cash: FloatArray, how: SharpeIntervals) -> list[tuple[str, FloatArray]]:
    """Volatility, CVaR and exposure of each account in each draw (n_draws, 2)."""
    n = len(net_returns)
    residuals = net_returns - net_returns.mean(axis=0)
    volatility, cvar, exposed = [], [], []
    for counts in how.counts(n):
        variance = (counts @ residuals**2 - (counts @ residuals) ** 2 / n) / (n - 1)
        volatility.append(np.sqrt(np.maximum(variance, 0.0) * YEAR))
        cvar.append(np.column_stack([_cvar_of_draws(returns, counts) for returns in net_returns.T]))
        exposed.append(1.0 - counts @ cash / n)
    parts = {"volatility": volatility, "cvar": cvar, "exposure": exposed}
    return [(name, np.concatenate(chunks)) for name, chunks in parts.items()]


def _cvar_of_draws(returns: FloatArray, counts: FloatArray) -> FloatArray:
    """CVaR of each draw (m,) of the returns (n,), from how often it holds each session (m, n)."""
    order = np.argsort(returns)  # the largest loss first
    tail = (1.0 - CONFIDENCE_LEVEL) * len(returns)
    drawn = counts[:, order]
    before = np.cumsum(drawn, axis=1) - drawn
    in_tail = np.minimum(drawn, np.maximum(tail - before, 0.0))  # the loss at the boundary counts in part
    return -(in_tail @ returns[order]) / tail
