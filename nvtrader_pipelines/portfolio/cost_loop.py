"""Compiled loop of the proportional cost."""

import numpy as np
from numba import njit
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]


@njit(cache=True)
def write_proportional_costs(trades: FloatArray, rate: float, costs: FloatArray) -> None:
    """Write `rate` times the traded value of each row."""
    for i in range(trades.shape[0]):
        traded = 0.0
        for j in range(trades.shape[1]):
            traded += abs(trades[i, j])
        costs[i] = rate * traded
