"""The tail of a loss distribution: value at risk, CVaR, and which scenarios make it up."""

from dataclasses import dataclass

import numpy as np
from numba import njit
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
ROUNDING = 1e-9  # (1 - 0.95) x 2000 is 100.00000000000009


@dataclass(frozen=True, eq=False)
class Tail:
    """The worst losses that hold a given number of scenarios, the boundary counted in part."""

    value_at_risk: float
    cvar: float
    beyond: NDArray[np.int64]  # scenarios whose loss exceeds the value at risk
    at_boundary: NDArray[np.int64]  # scenarios at the value at risk; empty where none of them is needed
    boundary_share: float  # how much of each of them counts


@njit(cache=True, fastmath={"reassoc", "contract"})
def portfolio_returns(returns: FloatArray, weights: FloatArray) -> FloatArray:
    """Returns (S,) of weights (N,) in each scenario, row by row.

    As fast as BLAS on one thread; BLAS on more threads than free cores takes ten times longer, and its last bits depend
    on their number.
    """
    found = np.empty(len(returns))
    for scenario in range(len(returns)):
        total = 0.0
        for name in range(len(weights)):
            total += returns[scenario, name] * weights[name]
        found[scenario] = total
    return found


def tail_of(losses: FloatArray, size: float) -> Tail:
    """The tail of `size` scenarios, at least one and seldom a whole number, of losses (S,).

    Scenarios tied at the boundary share what is missing there evenly, so the tail depends on no order.

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
    """A subgradient (N,) of the CVaR at the weights whose losses have this tail, for returns (S, N)."""
    gradient = returns.take(tail.beyond, axis=0).sum(axis=0)
    if len(tail.at_boundary):
        gradient = gradient + tail.boundary_share * returns.take(tail.at_boundary, axis=0).sum(axis=0)
    return gradient / -size
