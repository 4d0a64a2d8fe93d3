"""Compiled loops from actions to weights."""

import numpy as np
from numba import njit
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
ROUNDING = 1e-12  # of a sum of weights


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
def shift_levered(logits: FloatArray, bound: float) -> None:
    """Clip logits (n, N+1), subtract the names' maximum from the names', and negate the last, the leverage's."""
    for i in range(len(logits)):
        row, largest, last = logits[i], -bound, logits.shape[1] - 1
        for j in range(last + 1):
            within = row[j]
            if within < -bound:
                within = -bound
            if within > bound:
                within = bound
            row[j] = within
            if j < last:
                largest = max(largest, within)
        for j in range(last):
            row[j] -= largest
        row[last] = -row[last]


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
def scale_simplex(
    weights: FloatArray, eligible: NDArray[np.bool_], t: NDArray[np.int64], base: float, cap: float
) -> bool:
    """Turn exponentials (n, N+1), the last of the negated leverage, into weights of a gross from `base` to `cap`.

    Returns False if a session is not in the panel.
    """
    cash = weights.shape[1] - 1
    for i in range(len(weights)):
        if t[i] < 0 or t[i] >= len(eligible):
            return False
        row, may_hold, total, names = weights[i], eligible[t[i]], 0.0, 0.0
        for j in range(cash):
            total += row[j]
        share = (base + (cap - base) / (1.0 + row[cash])) / total
        for j in range(cash):
            row[j] = share * row[j] * may_hold[j]
            names += row[j]
        row[cash] = _cash_or_debt(names)
    return True


@njit(cache=True)
def net_long_short(
    sides: FloatArray, eligible: NDArray[np.bool_], t: NDArray[np.int64], gross: float, weights: FloatArray
) -> bool:
    """Write weights (n, N+1) of exponentials (n, 2N), long then short; False if a session is not in the panel."""
    n_symbols = sides.shape[1] // 2
    for i in range(len(sides)):
        if t[i] < 0 or t[i] >= len(eligible):
            return False
        row, may_hold, total, names = sides[i], eligible[t[i]], 0.0, 0.0
        for j in range(2 * n_symbols):
            total += row[j]
        for j in range(n_symbols):
            weights[i, j] = gross * ((row[j] - row[n_symbols + j]) / total) * may_hold[j]
            names += weights[i, j]
        weights[i, n_symbols] = _cash_or_debt(names)
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
def _cash_or_debt(names: float) -> float:
    """Cash besides the names' sum, negative if it is a debt, but not by rounding; NaN for NaN."""
    left = 1.0 - names
    return 0.0 if -ROUNDING < left < 0.0 else left


@njit(cache=True)
def _cash_left(names: float) -> float:
    """Cash besides the names' sum, never below 0 by rounding; NaN for NaN."""
    left = 1.0 - names
    return max(left, 0.0)
