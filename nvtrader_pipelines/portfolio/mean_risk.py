"""Long-only, fully invested portfolios from past returns, for the classic baselines."""

import hashlib
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular
from scipy.optimize import nnls
from skfolio import RiskMeasure
from skfolio.exceptions import OptimizationError
from skfolio.moments import LedoitWolf
from skfolio.optimization import MeanRisk, ObjectiveFunction
from skfolio.prior import EmpiricalPrior
from sklearn.covariance import ledoit_wolf

from nvtrader_pipelines.components.arrays import takes_arrays
from nvtrader_pipelines.portfolio.mean_cvar import MeanCvar, MeanCvarError, Objective

Solver = Callable[[NDArray[np.float64]], NDArray[np.float64]]
MAX_FEW_NAMES = 100  # above, an active set takes 20 ms and an interior point a second; cuts seldom close


class NoSolutionError(ValueError):
    """Failure of the optimizer to find a portfolio for the returns."""


@takes_arrays
def minimum_variance_weights(returns: NDArray[np.float64]) -> NDArray[np.float64]:
    """Minimum-variance weights (N,) for past simple returns (S, N), with shrunk covariance.

    Raises:
        NoSolutionError: if the optimizer fails.
        ValueError: if the returns are not finite or too few.

    Source: Markowitz (1952); Ledoit & Wolf (2004) towards a scaled identity; solved by skfolio, and of many names as
    non-negative least squares (Lawson & Hanson 1974).
    """
    if returns.shape[-1] > MAX_FEW_NAMES:
        return _solve_cached("minimum_variance", _minimum_variance_active_set, returns)
    optimizer = MeanRisk(
        objective_function=ObjectiveFunction.MINIMIZE_RISK,
        risk_measure=RiskMeasure.VARIANCE,
        # positive definite even for identical names
        prior_estimator=EmpiricalPrior(covariance_estimator=LedoitWolf()),
    )

    def solve(window: NDArray[np.float64]) -> NDArray[np.float64]:
        optimizer.fit(np.ascontiguousarray(window))  # sums round by memory layout
        return np.asarray(optimizer.weights_, dtype=np.float64)

    return _solve_cached("minimum_variance", solve, returns)


def _minimum_variance_active_set(window: NDArray[np.float64]) -> NDArray[np.float64]:
    """Minimum-variance weights (N,) in proportion to the v >= 0 that minimizes v'Cv / 2 - sum(v)."""
    factor = np.linalg.cholesky(ledoit_wolf(np.ascontiguousarray(window))[0])
    return nnls(factor.T, solve_triangular(factor, np.ones(len(factor)), lower=True))[0]


@takes_arrays
def mean_cvar_weights(returns: NDArray[np.float64], confidence_level: float = 0.95) -> NDArray[np.float64]:
    """Weights (N,) that maximize mean less CVaR of equally likely simple returns (S, N).

    If the optimum is not unique, the result is the vertex where the simplex algorithm stops: equal returns give equal
    weights.

    Raises:
        NoSolutionError: if the optimum is not certified.
        ValueError: if the returns are not finite or the tail holds less than one return.

    Source: Rockafellar & Uryasev (2000), risk aversion 1.
    """

    def solve(window: NDArray[np.float64]) -> NDArray[np.float64]:
        names = [str(i) for i in range(window.shape[1])]
        optimizer = MeanCvar(names, objective=Objective(confidence_level=confidence_level, risk_aversion=1.0))
        method = "cuts" if len(names) <= MAX_FEW_NAMES else "rockafellar_uryasev"
        return optimizer.solve(window, expected_returns=window.mean(axis=0), method=method).weights

    return _solve_cached(f"mean_cvar {confidence_level!r}", solve, returns)


_cached_weights: dict[tuple[str, bytes], NDArray[np.float64]] = {}  # a few hundred windows per run, 160 bytes each


def _solve_cached(objective: str, solve: Solver, returns: NDArray[np.float64]) -> NDArray[np.float64]:
    """Solve or return cached weights: experiments repeat windows, 3 to 40 ms each."""
    key = objective, hashlib.sha256(repr(returns.shape).encode() + returns.tobytes()).digest()
    if key not in _cached_weights:
        _cached_weights[key] = _solve_cleanly(solve, returns)
    return _cached_weights[key].copy()


def _solve_cleanly(solve: Solver, returns: NDArray[np.float64]) -> NDArray[np.float64]:
    """Solve, and remove the solver's rounding: weights are not negative and sum to 1."""
    if returns.ndim != 2 or len(returns) < 2 or not np.isfinite(returns).all():
        raise ValueError(f"needs finite returns (sessions, names) over two sessions or more, got {returns.shape}")
    if returns.shape[1] == 1:
        return np.ones(1)
    try:
        weights = np.maximum(solve(returns), 0.0)
    except (OptimizationError, MeanCvarError, np.linalg.LinAlgError, RuntimeError) as failure:
        raise NoSolutionError(
            f"no optimal portfolio of {returns.shape[1]} names for the last {len(returns)} returns: {failure}"
        ) from failure
    return weights / weights.sum()
