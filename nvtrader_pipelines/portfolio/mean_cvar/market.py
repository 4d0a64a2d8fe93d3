"""Objective on one set of scenarios, scaled by its largest term, and its tangents."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from nvtrader_pipelines.portfolio.mean_cvar.tail import cvar_gradient, portfolio_returns, tail_of

FloatArray = NDArray[np.float64]
MIN_SHARE_OF_OBJECTIVE = 1e-4  # smallest unit as a fraction of the largest term; below it differences are rounding
MIN_SHARE_OF_LOSSES = 1e-6  # smallest unit as a fraction of risk aversion x the largest return


@dataclass(frozen=True, eq=False)
class Market:
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

    def in_units_of(self, unit: float) -> "Market":
        """Return the market rescaled to another unit."""
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


def normalize_market(market: Market) -> Market:
    """Return the market in units of the largest term of its objective."""
    terms = [market.risk * return_scale(market.scenarios), float(np.abs(market.expected_returns).max())]
    if market.cost is not None:
        terms.append(float(market.cost.max()))
    if market.volatility_factor is not None:
        terms.append(float(np.abs(market.volatility_factor).max()))
    return market.in_units_of(market.unit * max(terms) or 1.0)


def min_unit(market: Market) -> float:
    """Smallest unit, in fractions of wealth, at which the solver's tolerances still hold."""
    largest = max(float(market.scenarios.max()), -float(market.scenarios.min()))
    return market.unit * max(MIN_SHARE_OF_OBJECTIVE, MIN_SHARE_OF_LOSSES * market.risk * largest)


def tangent_at(market: Market, weights: FloatArray) -> Tangent:
    """Objective at weights (N,) and its tangents there."""
    tail = tail_of(portfolio_returns(market.scenarios, weights * -market.risk), market.tail_size)
    gradient = cvar_gradient(market.scenarios, tail, market.tail_size) * market.risk
    objective = tail.cvar - float(market.expected_returns @ weights)
    if market.cost is not None and market.current is not None:
        objective += float(market.cost @ np.abs(weights - market.current))
    if market.volatility_factor is None:
        return Tangent(objective, gradient, None)
    exposure = weights @ market.volatility_factor
    volatility = float(np.sqrt(exposure @ exposure))
    slope = market.volatility_factor @ exposure / volatility if volatility > 0.0 else None
    return Tangent(objective + volatility, gradient, slope)
