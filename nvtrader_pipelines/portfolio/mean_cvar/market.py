"""The objective on one set of scenarios, in units of their spread, and its tangents."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nvtrader_pipelines.portfolio.mean_cvar.tail import cvar_gradient, portfolio_returns, tail_of

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Market:
    """One solve's inputs. All but the scenarios are in units of `scale`: HiGHS's tolerances are absolute."""

    scenarios: FloatArray  # (S, N) simple returns as given
    scale: float  # the deviation of an equally weighted portfolio's returns
    tail_size: float  # scenarios
    risk_aversion: float
    expected_returns: FloatArray  # (N,)
    current: FloatArray | None  # (N,)
    cost: FloatArray | None  # (N,) of absolute changes
    volatility_penalty: float
    volatility_factor: FloatArray | None  # (N, K)


@dataclass(frozen=True, eq=False)
class Tangent:
    """The objective at weights, and planes below its CVaR and volatility that touch them there."""

    objective: float
    cvar: FloatArray  # (N,) gradient; the plane goes through 0, as the CVaR is homogeneous
    volatility: FloatArray | None  # (N,) gradient; None without a penalty, and where the volatility is 0


def scale_of(scenarios: FloatArray) -> float:
    """The deviation of an equally weighted portfolio's returns (S, N), at least 1e-4 of the largest; 1 if all are 0."""
    largest = max(float(scenarios.max()), -float(scenarios.min()))
    deviation = float(portfolio_returns(scenarios, np.full(scenarios.shape[1], 1.0 / scenarios.shape[1])).std())
    return max(deviation, 1e-4 * largest) or 1.0


def tangent_at(market: Market, weights: FloatArray) -> Tangent:
    """The objective at weights (N,) and its tangents."""
    tail = tail_of(portfolio_returns(market.scenarios, weights / -market.scale), market.tail_size)
    gradient = cvar_gradient(market.scenarios, tail, market.tail_size) / market.scale
    objective = market.risk_aversion * tail.cvar - float(market.expected_returns @ weights)
    if market.cost is not None and market.current is not None:
        objective += float(market.cost @ np.abs(weights - market.current))
    if market.volatility_factor is None:
        return Tangent(objective, gradient, None)
    exposure = weights @ market.volatility_factor
    volatility = float(np.sqrt(exposure @ exposure))
    slope = market.volatility_factor @ exposure / volatility if volatility > 0.0 else None
    return Tangent(objective + market.volatility_penalty * volatility, gradient, slope)
