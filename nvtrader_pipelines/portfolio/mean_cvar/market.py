"""The objective on one set of scenarios, in units of its largest part, and its tangents."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from nvtrader_pipelines.portfolio.mean_cvar.tail import cvar_gradient, portfolio_returns, tail_of

FloatArray = NDArray[np.float64]
SMALLEST_UNIT = 1e-4  # of the largest part of the objective: what is smaller still is rounding
SMALLEST_OF_LOSSES = 1e-6  # of the largest return


@dataclass(frozen=True, eq=False)
class Market:
    """One solve's inputs. The terms of the objective are in units of `unit`: the solvers' tolerances are absolute."""

    scenarios: FloatArray  # (S, N) simple returns as given
    tail_size: float  # scenarios
    unit: float  # of the objective
    risk: float  # risk aversion / unit
    expected_returns: FloatArray  # (N,) / unit
    current: FloatArray | None  # (N,)
    cost: FloatArray | None  # (N,) of absolute changes / unit
    volatility_factor: FloatArray | None  # (N, K) x penalty / unit

    def in_units_of(self, unit: float) -> "Market":
        """The same market in another unit of the objective."""
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
    """The objective at weights, and planes below its CVaR and volatility terms that touch them there."""

    objective: float
    cvar: FloatArray  # (N,) gradient; the plane goes through 0, as the CVaR is homogeneous
    volatility: FloatArray | None  # (N,) gradient; None without a penalty, and where the volatility is 0


def scale_of(scenarios: FloatArray) -> float:
    """The deviation of an equally weighted portfolio's returns (S, N), at least 1e-4 of the largest."""
    largest = max(float(scenarios.max()), -float(scenarios.min()))
    deviation = float(portfolio_returns(scenarios, np.full(scenarios.shape[1], 1.0 / scenarios.shape[1])).std())
    return max(deviation, 1e-4 * largest)


def in_own_unit(market: Market) -> Market:
    """The market in units of the largest part of its objective."""
    parts = [market.risk * scale_of(market.scenarios), float(np.abs(market.expected_returns).max())]
    if market.cost is not None:
        parts.append(float(market.cost.max()))
    if market.volatility_factor is not None:
        parts.append(float(np.abs(market.volatility_factor).max()))
    return market.in_units_of(market.unit * max(parts) or 1.0)


def smallest_unit(market: Market) -> float:
    """The least unit in which the market can be solved, for one in its own unit."""
    largest = max(float(market.scenarios.max()), -float(market.scenarios.min()))
    return market.unit * max(SMALLEST_UNIT, SMALLEST_OF_LOSSES * market.risk * largest)


def tangent_at(market: Market, weights: FloatArray) -> Tangent:
    """The objective at weights (N,) and its tangents."""
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
