"""Profitability: growth beyond the market's average, and whether it lasts."""

import numpy as np
from numpy.typing import NDArray

from nvtrader_pipelines.evaluation.statistics import UndefinedStatisticError, require_returns
from nvtrader_pipelines.market.calendar import SESSIONS_PER_YEAR

MIN_WINDOWS = 2  # a slope needs two points


def excess_growth(
    returns: NDArray[np.float64], market: NDArray[np.float64], periods_per_year: int = SESSIONS_PER_YEAR
) -> float:
    """Mean log growth per year beyond that of the market, from the net returns (n,) of both on the same sessions.

    Raises:
        ValueError: if the lengths differ, there are no returns, or one is not finite.
        UndefinedStatisticError: if one is not above -1: all was lost, and a logarithm has no value there.
    """
    if returns.shape != market.shape:
        raise ValueError(
            f"excess growth needs both returns of each session, but the shapes are {returns.shape} and {market.shape}"
        )
    lowest = min(require_returns(returns, 1).min(), require_returns(market, 1).min())
    if lowest <= -1.0:
        raise UndefinedStatisticError(f"log growth needs returns above -1, but the lowest is {lowest:.6g}")
    return float(np.mean(np.log1p(returns) - np.log1p(market))) * periods_per_year


def excess_growth_slope(excess: NDArray[np.float64]) -> float:
    """Change of excess growth from one test window to the next, by least squares; below 0 the alpha decays.

    Args:
        excess: excess growth per year of each window (n_windows,), in their order.

    Raises:
        ValueError: if a number is not finite.
        UndefinedStatisticError: if there are fewer than two windows.

    Source: the paper shows performance over successive test periods; the slope is this package's summary of it.
    """
    if len(excess) < MIN_WINDOWS:
        raise UndefinedStatisticError(
            f"a decay shows over {MIN_WINDOWS} test windows or more, but there is {len(excess)}"
        )
    checked = require_returns(excess, MIN_WINDOWS)
    return float(np.polyfit(np.arange(len(checked)), checked, deg=1)[0])
