"""Profitability: growth beyond the market average, and its decay."""

import numpy as np
from numpy.typing import NDArray

from nvtrader_pipelines.components.arrays import takes_arrays
from nvtrader_pipelines.evaluation.statistics import UndefinedStatisticError, require_returns

MIN_WINDOWS = 2  # a slope needs two points


@takes_arrays
def excess_growth(returns: NDArray[np.float64], market: NDArray[np.float64], periods_per_year: int) -> float:
    """Mean excess log growth per year over the market, from net returns (n,) of the same sessions.

    Raises:
        ValueError: if the lengths differ, there are no returns, or one is not finite.
        UndefinedStatisticError: if a return is not above -1, so that its logarithm is undefined.
    """
    if returns.shape != market.shape:
        raise ValueError(f"excess growth: shapes differ, {returns.shape} and {market.shape} of the market")
    lowest = min(require_returns(returns, 1).min(), require_returns(market, 1).min())
    if lowest <= -1.0:
        raise UndefinedStatisticError(f"log growth needs returns above -1, but the lowest is {lowest:.6g}")
    return float(np.mean(np.log1p(returns) - np.log1p(market))) * periods_per_year


@takes_arrays
def excess_growth_slope(excess: NDArray[np.float64]) -> float:
    """Change of excess growth per test window, by least squares; negative when alpha decays.

    Args:
        excess: excess growth per year of each window (n_windows,), in order.

    Raises:
        ValueError: if a number is not finite.
        UndefinedStatisticError: if there are fewer than two windows.

    Source: the paper shows performance over successive test periods; the slope is this package's summary of it.
    """
    if len(excess) < MIN_WINDOWS:
        raise UndefinedStatisticError(f"alpha decay needs {MIN_WINDOWS} test windows, got {len(excess)}")
    checked = require_returns(excess, MIN_WINDOWS)
    return float(np.polyfit(np.arange(len(checked)), checked, deg=1)[0])
