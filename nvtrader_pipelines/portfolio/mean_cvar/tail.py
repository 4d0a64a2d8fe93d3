"""Tail of a loss distribution: value at risk, CVaR, and the scenarios beyond."""

from dataclasses import dataclass

import numpy as np
from numba import njit
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
ROUNDING = 1e-9  # (1 - 0.95) x 2000 is 100.00000000000009


@dataclass(frozen=True, eq=False)
class Tail:
    """Worst losses of a given number of scenarios, those at the boundary counted in part."""

    value_at_risk: float
    cvar: float
    beyond: NDArray[np.int64]  # scenarios whose loss exceeds the value at risk
    at_boundary: NDArray[np.int64]  # scenarios at the value at risk; empty if the tail ends before them
    boundary_share: float  # fraction of each scenario at the boundary that belongs to the tail


@njit(cache=True, fastmath={"reassoc", "contract"})
def portfolio_returns(returns: FloatArray, weights: FloatArray) -> FloatArray:
    """Portfolio returns (S,) of weights (N,) on returns (S, N), summed row by row.

    As fast as BLAS on one thread. BLAS with more threads than free cores takes ten times longer, and its last bits
    depend on the number of threads.
    """
    portfolio = np.empty(len(returns))
    for scenario in range(len(returns)):
        total = 0.0
        for name in range(len(weights)):
            total += returns[scenario, name] * weights[name]
        portfolio[scenario] = total
    return portfolio


def tail_of(losses: FloatArray, size: float) -> Tail:
    """Tail of `size` scenarios of losses (S,); `size` is at least one and rarely a whole number.

    Scenarios tied at the boundary share the rest of the tail evenly, so their order does not matter.

    Source: Rockafellar & Uryasev (2002), proposition 8; by selection instead of sorting.
    """
    whole = min(int(size + ROUNDING), len(losses) - 1)
    position = len(losses) - whole - 1
    boundary = np.partition(losses, position)[position]
    beyond = np.flatnonzero(losses > boundary)
    missing = size - len(beyond)
    cvar = (losses[beyond].sum() + missing * boundary) / size
    if missing <= ROUNDING * size:
        return Tail(float(boundary), float(cvar), beyond, beyond[:0], 0.0)
    ties = np.flatnonzero(losses == boundary)
    return Tail(float(boundary), float(cvar), beyond, ties, missing / len(ties))


def cvar_gradient(returns: FloatArray, tail: Tail, size: float) -> FloatArray:
    """Subgradient (N,) of the CVaR on returns (S, N), at the weights with this tail."""
    gradient = returns.take(tail.beyond, axis=0).sum(axis=0)
    if len(tail.at_boundary):
        gradient = gradient + tail.boundary_share * returns.take(tail.at_boundary, axis=0).sum(axis=0)
    return gradient / -size
