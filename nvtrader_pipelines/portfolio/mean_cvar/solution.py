"""Solution and errors of a Mean-CVaR solve."""

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Method = Literal["cuts", "rockafellar_uryasev"]
TOLERANCE = 1e-7  # relative gap of a certified solution
SMALL = 0.01  # units; a smaller objective is solved again in units of itself


class MeanCvarError(Exception):
    """Base of the errors: no certified solution."""


class InfeasibleError(MeanCvarError, ValueError):
    """No portfolio satisfies all constraints."""


class UncertifiedError(MeanCvarError, RuntimeError):
    """The best portfolio found was not proven optimal within the tolerance."""


@dataclass(frozen=True, eq=False)
class MeanCvarSolution:
    """Optimal portfolio with its certificate: none is better by more than the gap.

    The objective is risk aversion x CVaR - expected return + cost + volatility penalty, a fraction of wealth over the
    horizon of the scenarios. It is minimized; no portfolio that satisfies the constraints is below `lower_bound`.

    The gap is relative to |objective|. If the terms of the objective cancel, it is relative to 1e-6 of the largest term
    (risk aversion x standard deviation of the equally weighted portfolio, expected return, cost, or volatility penalty)
    or to 1e-8 x risk aversion x the largest return, whichever is larger: smaller differences are rounding.

    Solvers satisfy constraints to about 1e-9, so the objective can fall below the lower bound. If it does by at most
    1e-8 of the largest term or of |objective|, the lower bound is set to the objective.
    """

    weights: NDArray[np.float64]  # (N,) of equity
    cash: float  # 1 - sum of the weights
    value_at_risk: float  # lower quantile of the losses at the confidence level
    cvar: float  # mean loss of the tail
    expected_return: float  # 0 if no expected returns were given
    turnover: float  # one-way: half the sum of absolute changes, cash included; 0 without current weights
    cost: float  # fraction of equity, for trades in the names; cash is free to change
    objective: float  # of `weights`, recomputed from the scenarios; upper bound of the optimum
    lower_bound: float
    gap: float  # objective - lower_bound, relative as above; at most 1e-7
    n_iterations: int  # linear programs solved by "cuts"; simplex or interior-point iterations of the whole program
    method: Method  # that found the solution


def relative_gap(upper: float, lower: float, unit: float = 1.0) -> float:
    """Distance between the bounds, relative to |upper| or `unit` / 100, whichever is larger.

    It is infinite if a bound is: inf - inf <= tolerance * inf must not count as a certificate.
    """
    if not (math.isfinite(upper) and math.isfinite(lower)):
        return math.inf
    return (upper - lower) / max(abs(upper), SMALL * unit)
