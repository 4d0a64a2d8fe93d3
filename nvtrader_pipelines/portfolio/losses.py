"""Decisions since the position in each name last lost."""

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
NEVER = 255  # decisions since a name's last loss, if it did not lose or earned a profit since; the most counted
ROUNDING = 1e-12  # of equity: a name without a return earns no more
TOLERANCE = 1e-5  # of equity: outcomes within it are neither a loss nor a profit


def count_since_loss(since_loss: IntArray, outcomes: FloatArray) -> IntArray:
    """Decisions since the last loss after a period, from those before it (..., N) and its outcomes (3, ..., N).

    A name that earned less than its cost lost, and one that earned more has `NEVER` lost; any other name, also one
    without a return, is one decision further from its loss.

    Source: the loss shutdown of lee101/stock-prediction (gymrl), whose counters run down from the cooldown, one for
    long and one for short positions.
    """
    value, basis, cost = outcomes
    earned = value - basis  # without a return only rounding of the two
    is_flat = np.abs(earned) <= ROUNDING
    net = earned - cost
    later = np.where(net > TOLERANCE, NEVER, np.minimum(since_loss + 1, NEVER))
    return np.where(~is_flat & (net < -TOLERANCE), 0, later)
