"""Compiled loop of scenarios."""

import numpy as np
from numba import njit
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]


@njit(cache=True)
def add_sessions(logs: FloatArray, drawn: NDArray[np.int64] | FloatArray, scale: int, totals: FloatArray) -> None:
    """Add the log returns (T, N) of sessions drawn x scale, fractions dropped, (horizon, S) to totals (S, N)."""
    for step in range(len(drawn)):
        for scenario in range(len(totals)):
            session = int(drawn[step, scenario] * scale)  # as _positions
            for name in range(totals.shape[1]):
                totals[scenario, name] += logs[session, name]


add_sessions(np.zeros((1, 1)), np.zeros((0, 0)), 1, np.zeros((0, 1)))  # loads Numba's target once for all forks
