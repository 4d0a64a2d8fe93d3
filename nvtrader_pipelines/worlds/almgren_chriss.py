"""Optimal execution in closed form, by Almgren & Chriss (2000)."""

import math
from collections.abc import Sequence
from typing import Annotated, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, NonNegativeFloat, PositiveFloat, model_validator

from nvtrader_pipelines.components.component import Component

FloatArray = NDArray[np.float64]


class ImpactModel(Component):
    """Order to sell within some days in equal steps, against linear permanent and temporary impact.

    Prices follow an arithmetic random walk without drift. The defaults are the example of the source.

    Source: Almgren & Chriss (2000), Optimal execution of portfolio transactions, Table 1.
    """

    shares: PositiveFloat = 1e6  # X, to be sold
    price: PositiveFloat = 50.0  # at the arrival of the order
    horizon: PositiveFloat = 5.0  # T, days
    n_steps: Annotated[int, Field(ge=1, le=10_000)] = 5  # N, trades
    volatility: NonNegativeFloat = 0.95  # sigma, price per square root of a day
    permanent_impact: NonNegativeFloat = 2.5e-7  # gamma, lasting fall of the price per share
    temporary_impact: NonNegativeFloat = 2.5e-6  # eta, fall of a fill's price per share and day
    half_spread: NonNegativeFloat = 0.0625  # epsilon, price
    risk_aversion: NonNegativeFloat = 1e-6  # lambda, per unit of money

    @model_validator(mode="after")
    def _require_convex_cost(self) -> Self:
        if self.net_impact <= 0.0:
            raise ValueError(
                f"temporary_impact must exceed half of permanent_impact times a step of {self.step_days:g} days "
                f"({self.permanent_impact * self.step_days / 2.0:g}), else one sale is as cheap as several, but it is "
                f"{self.temporary_impact:g}; raise it, or n_steps"
            )
        return self

    @property
    def step_days(self) -> float:
        """Days of a step, tau."""
        return self.horizon / self.n_steps

    @property
    def move_deviation(self) -> float:
        """Standard deviation of a step's move in the model, price."""
        return self.volatility * self.step_days**0.5

    @property
    def net_impact(self) -> float:
        """Temporary impact less the permanent impact that discrete steps count twice, eta tilde."""
        return self.temporary_impact - self.permanent_impact * self.step_days / 2.0

    @property
    def value(self) -> float:
        """Value of the order at the arrival price."""
        return self.shares * self.price


def kappa(model: ImpactModel) -> float:
    """Rate per day at which the optimal inventory decays; 0 for a straight line.

    Source: 2(cosh(kappa tau) - 1) = lambda sigma^2 tau^2 / eta tilde, in a form that is exact for small rates.
    """
    rate = math.sqrt(model.risk_aversion * model.volatility**2 / model.net_impact)
    return 2.0 / model.step_days * math.asinh(rate * model.step_days / 2.0)


def sale_fractions(model: ImpactModel) -> FloatArray:
    """Fraction of the shares left that each optimal trade sells, (N,); it does not depend on how many are left."""
    rate, days_left = kappa(model), model.step_days * np.arange(model.n_steps, -1, -1)
    before, after = days_left[:-1], days_left[1:]
    # sinh(kappa after) / sinh(kappa before), without overflow
    ratios = np.expm1(-2.0 * rate * after) / np.expm1(-2.0 * rate * before) if rate > 0.0 else after / before
    return np.asarray(1.0 - math.exp(-rate * model.step_days) * ratios, np.float64)


def trajectory(model: ImpactModel) -> FloatArray:
    """Optimal inventory before the first trade and after each, in shares, (N+1,)."""
    return model.shares * np.cumprod(np.append(1.0, 1.0 - sale_fractions(model)), dtype=np.float64)


def expected_cost(model: ImpactModel, holdings: FloatArray) -> float:
    """Expected implementation shortfall of an inventory path (N+1,) that ends at 0, in money."""
    trades = _trades(model, holdings)
    permanent = model.permanent_impact * holdings[0] ** 2 / 2.0
    spread, temporary = model.half_spread * np.abs(trades).sum(), model.net_impact / model.step_days
    return float(permanent + spread + temporary * (trades**2).sum())


def cost_variance(model: ImpactModel, holdings: FloatArray) -> float:
    """Variance of the implementation shortfall of an inventory path (N+1,) that ends at 0, in money squared."""
    _trades(model, holdings)
    return float(model.volatility**2 * model.step_days * (holdings[1:] ** 2).sum())


def efficient_frontier(model: ImpactModel, risk_aversions: Sequence[float]) -> FloatArray:
    """Expected cost and variance of the optimal path at each risk aversion, (m, 2)."""
    points = []
    for risk_aversion in risk_aversions:
        averse = type(model).model_validate({**model.model_dump(), "risk_aversion": risk_aversion})
        holdings = trajectory(averse)
        points.append((expected_cost(averse, holdings), cost_variance(averse, holdings)))
    return np.array(points).reshape(-1, 2)


def _trades(model: ImpactModel, holdings: FloatArray) -> FloatArray:
    """Shares sold in each step, (N,).

    Raises:
        ValueError: if the path does not have N+1 entries, or keeps shares.
    """
    if holdings.shape != (model.n_steps + 1,) or abs(holdings[-1]) > 1e-9 * model.shares:
        raise ValueError(f"a path needs {model.n_steps + 1} holdings that end at 0, but found {holdings.tolist()}")
    return -np.diff(holdings)
