"""Long-only, fully invested portfolios from past returns: the optimizers behind the classic baselines."""

import hashlib

import numpy as np
from numpy.typing import NDArray
from skfolio import RiskMeasure
from skfolio.exceptions import OptimizationError
from skfolio.moments import LedoitWolf
from skfolio.optimization import MeanRisk, ObjectiveFunction
from skfolio.prior import EmpiricalPrior


class NoSolutionError(ValueError):
    """The optimizer found no portfolio for these returns."""


def minimum_variance_weights(returns: NDArray[np.float64]) -> NDArray[np.float64]:
    """Weights (N,) of least variance for past simple returns (S, N), with shrunk covariance.

    Raises:
        NoSolutionError: if the optimizer fails.
        ValueError: if the returns are not finite or too few.

    Source: Markowitz (1952); Ledoit & Wolf (2004) towards a scaled identity; solved by skfolio.
    """
    optimizer = MeanRisk(
        objective_function=ObjectiveFunction.MINIMIZE_RISK,
        risk_measure=RiskMeasure.VARIANCE,
        prior_estimator=_shrunk_prior(),
    )
    return _remembered("minimum_variance", optimizer, returns)


def mean_cvar_weights(returns: NDArray[np.float64], confidence_level: float = 0.95) -> NDArray[np.float64]:
    """Weights (N,) of highest mean less CVaR, both per session, for past simple returns (S, N).

    Raises:
        NoSolutionError: if the optimizer fails.
        ValueError: if the returns are not finite or the tail holds less than one of them.

    Source: Rockafellar & Uryasev (2000), risk aversion 1; solved by skfolio.
    """
    tail = (1.0 - confidence_level) * len(returns)
    if tail < 1.0 - 1e-9:
        raise ValueError(
            f"mean_cvar at {confidence_level:.1%} needs a tail of at least one return, but {len(returns)} returns "
            f"leave {tail:.2f}; lower the level or lengthen the history"
        )
    optimizer = MeanRisk(
        objective_function=ObjectiveFunction.MAXIMIZE_UTILITY,
        risk_measure=RiskMeasure.CVAR,
        cvar_beta=confidence_level,
        risk_aversion=1.0,
        prior_estimator=_shrunk_prior(),  # CVaR needs no covariance, but skfolio wants a regular one
    )
    return _remembered(f"mean_cvar {confidence_level!r}", optimizer, returns)


_weights: dict[tuple[str, bytes], NDArray[np.float64]] = {}  # a few hundred windows a run, 160 bytes each


def _remembered(objective: str, optimizer: MeanRisk, returns: NDArray[np.float64]) -> NDArray[np.float64]:
    """The optimizer's weights; experiments on one market ask for the same windows again, 20 to 40 ms each."""
    key = objective, hashlib.sha256(repr(returns.shape).encode() + returns.tobytes()).digest()
    if key not in _weights:
        _weights[key] = _solve(optimizer, returns)
    return _weights[key].copy()


def _shrunk_prior() -> EmpiricalPrior:
    """Sample means, and a covariance that is positive definite even for names that move as one."""
    return EmpiricalPrior(covariance_estimator=LedoitWolf())


def _solve(optimizer: MeanRisk, returns: NDArray[np.float64]) -> NDArray[np.float64]:
    """The optimizer's weights without the solver's rounding: none negative, sum exactly scaled to 1."""
    if returns.ndim != 2 or len(returns) < 2 or not np.isfinite(returns).all():
        raise ValueError(f"needs finite returns (sessions, names) over two sessions or more, got {returns.shape}")
    if returns.shape[1] == 1:
        return np.ones(1)
    try:
        optimizer.fit(np.ascontiguousarray(returns))  # sums round by memory layout
    except OptimizationError as failure:
        raise NoSolutionError(
            f"no portfolio of {returns.shape[1]} names solves for the last {len(returns)} returns: {failure}"
        ) from failure
    weights = np.maximum(np.asarray(optimizer.weights_, dtype=np.float64), 0.0)
    return weights / weights.sum()
