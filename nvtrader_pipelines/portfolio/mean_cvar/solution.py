"""What a solve of the mean-CVaR program returns, and how it fails."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Method = Literal["cuts", "rockafellar_uryasev"]
TOLERANCE = 1e-7  # relative gap of a certified solution


class MeanCvarError(RuntimeError):
    """The program has no certified solution."""


class InfeasibleError(MeanCvarError):
    """No portfolio keeps all constraints."""


class UncertifiedError(MeanCvarError):
    """A portfolio was found, but not shown to be optimal within the tolerance."""


@dataclass(frozen=True, eq=False)
class MeanCvarSolution:
    """A portfolio and the proof that no other is better by more than the gap.

    The objective is minimised: risk aversion x CVaR - expected return + cost + volatility penalty, a fraction of
    wealth over the horizon of the scenarios. Any portfolio that keeps the constraints has at least `lower_bound`.
    """

    weights: NDArray[np.float64]  # (N,) of equity
    cash: float  # of equity: what the names leave
    value_at_risk: float  # positive loss, the lower quantile of the losses
    cvar: float  # positive mean loss of the tail
    expected_return: float  # 0 where no expected returns were given
    turnover: float  # one-way: half the sum of absolute changes of the names; 0 where no current weights were given
    cost: float  # of equity
    objective: float  # of `weights`, recomputed from the scenarios: the upper bound of the optimum
    lower_bound: float
    gap: float  # objective - lower_bound, relative: at most 1e-7
    n_iterations: int  # linear programs solved, or the solver's own iterations
    method: Method
