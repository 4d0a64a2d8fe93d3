"""Realized risk of the last session returns, in compiled loops."""

import numpy as np
from numba import njit
from numpy.typing import NDArray


def expected_shortfalls(returns: NDArray[np.float64], confidence_level: float) -> NDArray[np.float64]:
    """Mean loss beyond the value at risk of each row (n, S), as positive fractions (n,).

    The boundary return counts by the fraction that completes the tail.

    Raises:
        ValueError: if the tail holds less than one return.
    """
    tail = (1.0 - confidence_level) * returns.shape[1]
    if tail < 1.0 - 1e-9:
        raise ValueError(
            f"expected shortfall at {confidence_level:.1%} needs a tail of at least one return, "
            f"but {returns.shape[1]} returns leave {tail:.2f}; lower the level or lengthen the sample"
        )
    losses = np.empty(len(returns))
    _tail_losses(returns, tail, losses)
    return losses


def volatilities(returns: NDArray[np.float64], window: int) -> NDArray[np.float64]:
    """Standard deviation (ddof 0) of the last `window` returns of each row (n, S), (n,)."""
    deviations = np.empty(len(returns))
    _deviations(returns, window, deviations)
    return deviations


# The innermost loops go over rows: the returns of a session are contiguous and processed several at a time, and no
# branch depends on a return, which no processor could predict.


@njit(cache=True)
def _tail_losses(returns: NDArray[np.float64], tail: float, losses: NDArray[np.float64]) -> None:
    """Write the mean loss of the `tail` worst returns of each row."""
    n_rows, n_returns = returns.shape
    whole = int(tail + 1e-9)
    # the last counts by the fraction that completes the tail
    worst = np.full((min(whole + 1, n_returns), n_rows), np.inf)
    passed = np.empty(n_rows)
    for s in range(n_returns):
        for i in range(n_rows):
            passed[i] = returns[i, s]
        for rank in worst:  # each rank takes the smaller return and passes the larger one to the next
            for i in range(n_rows):
                lower, higher = min(rank[i], passed[i]), max(rank[i], passed[i])
                rank[i], passed[i] = lower, higher
    losses[:] = worst[-1] * (tail - whole)
    for j in range(whole):
        losses += worst[j]
    losses /= -tail


@njit(cache=True)
def _deviations(returns: NDArray[np.float64], window: int, deviations: NDArray[np.float64]) -> None:
    """Write the standard deviation of the last returns of each row."""
    n_rows, n_returns = returns.shape
    means = np.zeros(n_rows)
    for s in range(n_returns - window, n_returns):
        for i in range(n_rows):
            means[i] += returns[i, s]
    means /= window
    deviations[:] = 0.0
    for s in range(n_returns - window, n_returns):
        for i in range(n_rows):
            deviations[i] += (returns[i, s] - means[i]) ** 2
    for i in range(n_rows):
        deviations[i] = np.sqrt(deviations[i] / window)
