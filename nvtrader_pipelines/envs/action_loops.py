"""Compiled loops from actions to weights."""

import numpy as np
from numba import njit
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]


@njit(cache=True)
def shift_logits(logits: FloatArray, bound: float) -> None:
    """Clip logits (n, N+1) and subtract each row's maximum, so that no exponential overflows."""
    for i in range(len(logits)):
        row, largest = logits[i], -bound
        for j in range(len(row)):
            within = row[j]
            if within < -bound:
                within = -bound
            if within > bound:
                within = bound
            row[j] = within  # NaN is preserved, and raised by the account
            largest = max(largest, within)
        for j in range(len(row)):
            row[j] -= largest


@njit(cache=True)
def normalize_simplex(weights: FloatArray, eligible: NDArray[np.bool_], t: NDArray[np.int64]) -> bool:
    """Turn exponentials (n, N+1) into weights; False if a session is not in the panel."""
    cash = weights.shape[1] - 1
    for i in range(len(weights)):  # a separate pass, so that all rows' masks are fetched at once
        if t[i] < 0 or t[i] >= len(eligible):
            return False
        row, may_hold = weights[i], eligible[t[i]]
        total = row[cash]
        for j in range(cash):
            total += row[j]
            row[j] *= may_hold[j]
        row[cash] = 1.0 / total
    for i in range(len(weights)):
        row, names, share = weights[i], 0.0, weights[i, cash]
        for j in range(cash):
            row[j] *= share
        for j in range(cash):
            names += row[j]
        row[cash] = _cash_left(names)
    return True


@njit(cache=True)
def tilt_anchor(weights: FloatArray, anchor: FloatArray, t: NDArray[np.int64]) -> bool:
    """Turn factors (n, N+1) on the anchor into weights; False if a session is not in the panel."""
    cash = weights.shape[1] - 1
    for i in range(len(weights)):
        if t[i] < 0 or t[i] >= len(anchor):
            return False
        row, base = weights[i], anchor[t[i]]
        total, exposure, names = 0.0, 0.0, 0.0
        for j in range(cash):
            row[j] *= base[j]
            total += row[j]
            exposure += base[j]
        exposure *= row[cash]
        share = min(exposure, 1.0) / total if total != 0.0 else 0.0
        for j in range(cash):
            row[j] *= share
        for j in range(cash):
            names += row[j]
        row[cash] = _cash_left(names)
    return True


@njit(cache=True)
def _cash_left(names: float) -> float:
    """Cash besides the names' sum, never below 0 by rounding; NaN for NaN."""
    left = 1.0 - names
    return max(left, 0.0)
