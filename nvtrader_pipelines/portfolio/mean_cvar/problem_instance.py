"""Inputs of one solve, scaled by the largest term of the objective, and tangents of that."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from nvtrader_pipelines.portfolio.mean_cvar.tail import cvar_gradient, portfolio_returns, tail_of

FloatArray = NDArray[np.float64]
MIN_SHARE_OF_OBJECTIVE = 1e-4  # smallest unit as a fraction of the largest term; below it differences are rounding
MIN_SHARE_OF_LOSSES = 1e-6  # smallest unit as a fraction of risk aversion x the largest return


@dataclass(frozen=True, eq=False)
class ProblemInstance:
    """Inputs of one solve; the terms of the objective are divided by `unit`.

    Solver tolerances are absolute, so the objective should be about 1.
    """

    scenarios: FloatArray  # (S, N) simple returns, unscaled
    tail_size: float  # scenarios
    unit: float  # in fractions of wealth
    risk: float  # risk aversion / unit
    expected_returns: FloatArray  # (N,) / unit
    current: FloatArray | None  # (N,)
    cost: FloatArray | None  # (N,) per absolute change / unit
    volatility_factor: FloatArray | None  # (N, K) x penalty / unit

    def in_units_of(self, unit: float) -> "ProblemInstance":
        """Return the instance rescaled to another unit."""
        factor = self.unit / unit
        return replace(
            self,
            unit=unit,
            risk=self.risk * factor,
            expected_returns=self.expected_returns * factor,
            cost=None if self.cost is None else self.cost * factor,
            volatility_factor=None if self.volatility_factor is None else self.volatility_factor * factor,
        )


@dataclass(frozen=True, eq=False)
class Tangent:
    """Objective at some weights, and the planes that touch its CVaR and volatility there."""

    objective: float
    cvar: FloatArray  # (N,) gradient; its plane passes through 0, since CVaR is homogeneous
    volatility: FloatArray | None  # (N,) gradient; None without a penalty, and where the volatility is 0


def return_scale(scenarios: FloatArray) -> float:
    """Standard deviation of the equally weighted portfolio, at least 1e-4 of the largest return."""
    largest = max(float(scenarios.max()), -float(scenarios.min()))
    deviation = float(portfolio_returns(scenarios, np.full(scenarios.shape[1], 1.0 / scenarios.shape[1])).std())
    return max(deviation, 1e-4 * largest)


def normalize_instance(instance: ProblemInstance) -> ProblemInstance:
    """Return the instance in units of the largest term of its objective."""
    terms = [instance.risk * return_scale(instance.scenarios), float(np.abs(instance.expected_returns).max())]
    if instance.cost is not None:
        terms.append(float(instance.cost.max()))
    if instance.volatility_factor is not None:
        terms.append(float(np.abs(instance.volatility_factor).max()))
    return instance.in_units_of(instance.unit * max(terms) or 1.0)


def min_unit(instance: ProblemInstance) -> float:
    """Smallest unit, in fractions of wealth, at which the solver's tolerances still hold."""
    largest = max(float(instance.scenarios.max()), -float(instance.scenarios.min()))
    return instance.unit * max(MIN_SHARE_OF_OBJECTIVE, MIN_SHARE_OF_LOSSES * instance.risk * largest)


def tangent_at(instance: ProblemInstance, weights: FloatArray) -> Tangent:
    """Objective at weights (N,) and its tangents there."""
    tail = tail_of(portfolio_returns(instance.scenarios, weights * -instance.risk), instance.tail_size)
    gradient = cvar_gradient(instance.scenarios, tail, instance.tail_size) * instance.risk
    objective = tail.cvar - float(instance.expected_returns @ weights)
    if instance.cost is not None and instance.current is not None:
        objective += float(instance.cost @ np.abs(weights - instance.current))
    if instance.volatility_factor is None:
        return Tangent(objective, gradient, None)
    exposure = weights @ instance.volatility_factor
    volatility = float(np.sqrt(exposure @ exposure))
    slope = instance.volatility_factor @ exposure / volatility if volatility > 0.0 else None
    return Tangent(objective + volatility, gradient, slope)
