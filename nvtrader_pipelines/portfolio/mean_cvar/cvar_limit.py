"""Best mean under a limit of the CVaR, by the price of risk at which the limit binds."""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nvtrader_pipelines.portfolio.mean_cvar.constraints import Constraints, Objective, broadcast_per_name
from nvtrader_pipelines.portfolio.mean_cvar.optimizer import MeanCvar
from nvtrader_pipelines.portfolio.mean_cvar.solution import TOLERANCE, InfeasibleError, UncertifiedError

FloatArray = NDArray[np.float64]
ROUNDING = 1e-9  # relative, of a CVaR at its limit
LOWEST_PRICE = 1e-9  # of risk: the best mean, at the lowest CVaR that has it
MAX_PRICES = 100  # seven to nine sufficed where the limit bound, with 300 to 2,000 scenarios


class SolveInputs(NamedTuple):
    """Inputs of `MeanCvar.solve`."""

    scenarios: FloatArray  # (S, N) simple returns over the horizon
    current: FloatArray | None  # (N,); required by a turnover budget or a cost
    expected_returns: FloatArray | None  # (N,) over the horizon; None: all zero
    volatility_factor: FloatArray | None  # (N, K)


class _Point(NamedTuple):
    value: float  # objective without its CVaR term
    cvar: float
    weights: FloatArray  # (N,)

    def at(self, price: float) -> float:
        """Objective at a price of risk."""
        return self.value + price * self.cvar


def best_within_cvar(
    names: Sequence[str], constraints: Constraints, objective: Objective, limit: float, inputs: SolveInputs
) -> FloatArray:
    """Return the weights (N,) of the best objective without its CVaR term whose CVaR is at most `limit`.

    The limit's dual is solved. At each price of risk, the risk aversion of a Mean-CVaR program, the optimum is a lower
    bound. The next price makes the best portfolio within the limit and the best beyond it equally good. Where no
    portfolio is better than these two, their mixture that reaches the limit is the optimum. The objective's own risk
    aversion does not count.

    Raises:
        ValueError: if an input is malformed.
        InfeasibleError: if no portfolio satisfies the constraints and the limit (a ValueError).
        UncertifiedError: if the mixture is not proven to be optimal.

    Source: Krokhmal, Palmquist & Uryasev (2002) on the limit and its price.
    """

    def solve(price: float | None) -> _Point:
        terms = Objective(objective.confidence_level) if price is None else replace(objective, risk_aversion=price)
        given = inputs if price is not None else inputs._replace(expected_returns=None)
        solution = MeanCvar(names, constraints, terms).solve(**given._asdict())
        return _Point(_value(objective, inputs, solution.weights), solution.cvar, solution.weights)

    beyond = solve(LOWEST_PRICE)
    if beyond.cvar <= limit:
        return beyond.weights
    within = solve(None)
    if within.cvar > limit + ROUNDING * abs(limit):
        raise InfeasibleError(
            f"every portfolio within the other constraints has a CVaR of at least {within.cvar:.4g} at "
            f"{objective.confidence_level:.1%}, but the limit is {limit:g}; raise it, allow cash, or loosen a budget"
        )
    for _ in range(MAX_PRICES):
        if within.value <= beyond.value:
            return within.weights
        price = (within.value - beyond.value) / (beyond.cvar - within.cvar)
        point = solve(price)
        if point.at(price) >= within.at(price) - 2.0 * TOLERANCE * max(abs(within.value), price * abs(limit)):
            share = (limit - within.cvar) / (beyond.cvar - within.cvar)
            return within.weights + max(0.0, share) * (beyond.weights - within.weights)
        within, beyond = (point, beyond) if point.cvar <= limit else (within, point)
    raise UncertifiedError(
        f"the best portfolio with a CVaR of at most {limit:g} was not found at {MAX_PRICES} prices of risk; change the "
        "limit"
    )


def _value(objective: Objective, inputs: SolveInputs, weights: FloatArray) -> float:
    """Objective of weights (N,) without its CVaR term."""
    value = 0.0 if inputs.expected_returns is None else -float(inputs.expected_returns @ weights)
    if inputs.current is not None:
        cost = broadcast_per_name(objective.cost_bps, len(weights), "cost_bps") * 1e-4
        value += float(cost @ np.abs(weights - inputs.current))
    if inputs.volatility_factor is not None:
        value += objective.volatility_penalty * float(np.linalg.norm(weights @ inputs.volatility_factor))
    return value
