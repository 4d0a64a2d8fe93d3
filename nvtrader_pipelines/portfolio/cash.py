"""Cash: its name, and its weight beside those of names."""

import numpy as np
from numpy.typing import NDArray

CASH = "cash"  # last of the names of a weight vector
ROUNDING = 1e-9  # tolerance of a weight or a sum of weights in every check


def cash_beside(names: NDArray[np.float64]) -> NDArray[np.float64]:
    """Weight of cash (...) beside weights of names (..., N): negative if a debt, never by rounding."""
    cash = 1.0 - names.sum(axis=-1)
    return np.where((cash > -ROUNDING) & (cash < 0.0), 0.0, cash)
