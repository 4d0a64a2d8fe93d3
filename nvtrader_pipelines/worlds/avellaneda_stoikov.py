"""Quotes of a market maker in closed form, by Avellaneda & Stoikov (2008)."""

import math
from typing import Annotated, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, NonNegativeFloat, PositiveFloat, model_validator

from nvtrader_pipelines.components.component import Component

FloatArray = NDArray[np.float64]


class QuoteModel(Component):
    """Market maker around a random walk, whose quotes are hit more rarely the further they are from the price.

    A quote at a distance d of the price fills at the rate arrival_rate * exp(-fill_decay * d). The defaults are the
    example of the source.

    Source: Avellaneda & Stoikov (2008), High-frequency trading in a limit order book, section 3.
    """

    price: PositiveFloat = 100.0  # at the start
    horizon: PositiveFloat = 1.0  # T, a day
    n_steps: Annotated[int, Field(ge=1, le=100_000)] = 200  # of equal length, dt
    volatility: NonNegativeFloat = 2.0  # sigma, price per square root of a day
    arrival_rate: PositiveFloat = 140.0  # A, orders per day on each side
    fill_decay: PositiveFloat = 1.5  # k, per unit of price
    risk_aversion: PositiveFloat = 0.1  # gamma, per unit of money

    @model_validator(mode="after")
    def _require_rare_arrivals(self) -> Self:
        if self.arrival_rate * self.step_days > 1.0:
            raise ValueError(
                f"n_steps must be at least {math.ceil(self.arrival_rate * self.horizon)}, as a step sees one order at "
                f"most and {self.arrival_rate:g} arrive a day, but is {self.n_steps}; raise it"
            )
        return self

    @property
    def step_days(self) -> float:
        """Days of a step, dt."""
        return self.horizon / self.n_steps


def reservation_price(model: QuoteModel, price: float, inventory: FloatArray, days_left: float) -> FloatArray:
    """Price at which the market maker is indifferent to one share more, by inventory (n,)."""
    return price - np.asarray(inventory) * model.risk_aversion * model.volatility**2 * days_left


def optimal_spread(model: QuoteModel, days_left: float) -> float:
    """Distance between ask and bid."""
    return model.risk_aversion * model.volatility**2 * days_left + 2.0 / model.risk_aversion * math.log1p(
        model.risk_aversion / model.fill_decay
    )


def average_spread(model: QuoteModel) -> float:
    """Mean of the optimal spread over the horizon."""
    return optimal_spread(model, model.horizon / 2.0)


def avellaneda_stoikov_offsets(model: QuoteModel, inventory: FloatArray, days_left: FloatArray) -> FloatArray:
    """Distances of the bid below and of the ask above the price, (n, 2), by inventory and days left (n,)."""
    risk = model.risk_aversion * model.volatility**2 * np.asarray(days_left)
    half = risk / 2.0 + math.log1p(model.risk_aversion / model.fill_decay) / model.risk_aversion
    shift = np.asarray(inventory) * risk
    return np.stack([half + shift, half - shift], axis=1)
