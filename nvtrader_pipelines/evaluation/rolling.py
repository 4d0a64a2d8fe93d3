"""Statistics of the latest sessions at every session."""

from math import sqrt

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from nvtrader_pipelines.components.arrays import takes_arrays
from nvtrader_pipelines.evaluation.trials import sharpe_ratios

ROLLING_SESSIONS = 126  # of every rolling figure: half a year, as in empyrical and pyfolio


@takes_arrays
def rolling_sharpe(returns: NDArray[np.float64], periods_per_year: int) -> NDArray[np.float64]:
    """Annual Sharpe ratio of the last 126 returns at each session (n,); NaN before."""
    return _pad(sharpe_ratios(_windows(returns)) * sqrt(periods_per_year), len(returns))


@takes_arrays
def rolling_volatility(returns: NDArray[np.float64], periods_per_year: int) -> NDArray[np.float64]:
    """Annual volatility (ddof 1) of the last 126 returns at each session (n,); NaN before."""
    return _pad(_windows(returns).std(axis=0, ddof=1) * sqrt(periods_per_year), len(returns))


@takes_arrays
def rolling_turnover(turnover: NDArray[np.float64], periods_per_year: int) -> NDArray[np.float64]:
    """One-way turnover per year over the last 126 sessions at each session (n,); NaN before."""
    return _pad(_windows(turnover).mean(axis=0) * periods_per_year, len(turnover))


def _windows(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Windows as columns (126, n - 125); none where the series is shorter."""
    if len(values) < ROLLING_SESSIONS:
        return np.empty((ROLLING_SESSIONS, 0))
    return sliding_window_view(values, ROLLING_SESSIONS).T


def _pad(values: NDArray[np.float64], n: int) -> NDArray[np.float64]:
    return np.concatenate([np.full(n - len(values), np.nan), values])
