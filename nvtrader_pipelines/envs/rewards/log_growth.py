"""Log growth of equity over a step, in a compiled loop."""

import numpy as np
from numba import njit
from numpy.typing import NDArray

MIN_GROWTH = 1e-8  # so that the logarithm is finite at ruin


def log_growth(session_growth: NDArray[np.float64]) -> NDArray[np.float64]:
    """Log growth (n,) over k sessions (n, k), finite at ruin."""
    logarithms = np.empty(len(session_growth))
    _log_growth(session_growth, logarithms)
    return logarithms


@njit(cache=True)
def _log_growth(session_growth: NDArray[np.float64], logarithms: NDArray[np.float64]) -> None:
    for i in range(len(session_growth)):
        growth = 1.0
        for k in range(session_growth.shape[1]):
            growth *= session_growth[i, k]
        logarithms[i] = np.log(max(growth, MIN_GROWTH))
