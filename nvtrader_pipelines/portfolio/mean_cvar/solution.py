"""What a solve of the mean-CVaR program returns, and how it fails."""

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Method = Literal["cuts", "rockafellar_uryasev"]
TOLERANCE = 1e-7  # relative gap of a certified solution
SMALL = 0.01  # of the unit: an objective below it is solved again in units of itself


class MeanCvarError(Exception):
    """The program has no certified solution."""


class InfeasibleError(MeanCvarError, ValueError):
    """No portfolio keeps all constraints."""


class UncertifiedError(MeanCvarError, RuntimeError):
    """A portfolio was found, but not shown to be optimal within the tolerance."""


@dataclass(frozen=True, eq=False)
class MeanCvarSolution:
    """A portfolio and the proof that no other is better by more than the gap.

    The gap is relative to |objective|. Where the parts of the objective cancel it is relative to 1e-6 of the largest of
    them (risk aversion x deviation of an equally weighted portfolio's returns, expected return, cost, penalty
    x volatility) or to 1e-8 of risk aversion x the largest return, if that is more: what is below is rounding. Solvers
    keep constraints to 1e-9 or so, by which the objective can fall below the lower bound; where it does by no more than
    1e-8 of the largest part or of |objective|, the lower bound is set to the objective.

    The objective is minimised: risk aversion x CVaR - expected return + cost + volatility penalty, a fraction of
    wealth over the horizon of the scenarios. Any portfolio that keeps the constraints has at least `lower_bound`.
    """

    weights: NDArray[np.float64]  # (N,) of equity
    cash: float  # of equity: what the names leave
    value_at_risk: float  # the lower quantile of the losses at the confidence level
    cvar: float  # mean loss of the tail
    expected_return: float  # 0 where no expected returns were given
    turnover: float  # one-way: half the sum of absolute changes, cash included; 0 without current weights
    cost: float  # of equity, of the changes of the names alone
    objective: float  # of `weights`, recomputed from the scenarios: the upper bound of the optimum
    lower_bound: float
    gap: float  # objective - lower_bound, relative as above: at most 1e-7
    n_iterations: int  # linear programs of the cutting planes, or the solver's own iterations
    method: Method


def relative_gap(upper: float, lower: float, unit: float = 1.0) -> float:
    """Distance of the bounds relative to the upper one, or to a hundredth of `unit` if that is more; inf without both.

    An infinite bound certifies nothing, though inf - inf <= tolerance * inf reads as if it did.
    """
    if not (math.isfinite(upper) and math.isfinite(lower)):
        return math.inf
    return (upper - lower) / max(abs(upper), SMALL * unit)
