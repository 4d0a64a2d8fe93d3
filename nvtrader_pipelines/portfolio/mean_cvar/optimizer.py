"""The mean-CVaR optimizer: one object from constraints and objective, solved for any scenarios."""

from collections.abc import Sequence

import cvxpy as cp
import numpy as np
from numpy.typing import NDArray

from nvtrader_pipelines.portfolio.mean_cvar.constraints import Constraints, Objective
from nvtrader_pipelines.portfolio.mean_cvar.solution import MeanCvarSolution, Method

FloatArray = NDArray[np.float64]


class MeanCvar:
    """Portfolios of `names` that are optimal between expected return and CVaR under `constraints`.

    The model is compiled once per structure (which constraints there are, not their numbers), so an optimizer with
    other numbers is cheap to make.
    """

    def __init__(
        self, names: Sequence[str], constraints: Constraints | None = None, objective: Objective | None = None
    ) -> None:
        """Check the numbers against each other and compile the structure, if it is new.

        Raises:
            ValueError: if no portfolio can keep the constraints, or a number is out of range.
        """
        raise NotImplementedError

    def solve(
        self,
        scenarios: FloatArray,
        *,
        current: FloatArray | None = None,
        expected_returns: FloatArray | None = None,
        volatility_factor: FloatArray | None = None,
        method: Method = "cuts",
    ) -> MeanCvarSolution:
        """The optimal portfolio on equally likely scenarios, with its certificate.

        Args:
            scenarios: simple returns over the horizon, (S, N).
            current: weights now, drifted, (N,); needed by a turnover budget or a cost, and the rest is cash.
            expected_returns: over the horizon, (N,); None leaves the mean out: the least CVaR.
            volatility_factor: L, (N, K), of the covariance L L' over the horizon; needed by a volatility penalty.
            method: cutting planes, or the whole Rockafellar-Uryasev program at once.

        Raises:
            ValueError: if an input is malformed, or no portfolio can keep cash, caps, floors and turnover.
            InfeasibleError: if the constraints contradict each other otherwise.
            UncertifiedError: if the gap stays above 1e-7.
        """
        raise NotImplementedError

    def reference(
        self,
        scenarios: FloatArray,
        *,
        current: FloatArray | None = None,
        expected_returns: FloatArray | None = None,
        volatility_factor: FloatArray | None = None,
    ) -> cp.Problem:
        """The whole program in cvxpy, level and excesses explicit; its value is the optimum that `solve` reaches.

        Source: Rockafellar & Uryasev (2000).
        """
        raise NotImplementedError
