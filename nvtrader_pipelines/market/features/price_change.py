"""Price, and its change over the past: momentum, return, and distance from the recent peak."""

from typing import Literal, Self

import numpy as np
import polars as pl
from numpy.typing import NDArray
from pydantic import NonNegativeInt, PositiveInt, model_validator

from nvtrader_pipelines.components.component import Component
from nvtrader_pipelines.market.history import PriceHistory, apply_rolling, lag

SESSIONS_PER_MONTH = 21


class Momentum(Component):
    """Log price change from `months` to `skip` months ago, with months of 21 sessions.

    Source: Jegadeesh & Titman (1993).
    """

    kind: Literal["momentum"] = "momentum"
    months: PositiveInt = 12
    skip: NonNegativeInt = 1

    @model_validator(mode="after")
    def _require_skip_below_months(self) -> Self:
        if self.skip >= self.months:
            raise ValueError(f"momentum needs skip < months, but skip is {self.skip} and months {self.months}")
        return self

    @property
    def name(self) -> str:
        """Name of the feature's column."""
        return f"momentum_{self.months}_{self.skip}"

    def values(self, history: PriceHistory) -> NDArray[np.float64]:
        """Compute the feature at each session and symbol, (T, N)."""
        prices = np.log(history.last_closes())
        change = lag(prices, self.skip * SESSIONS_PER_MONTH) - lag(prices, self.months * SESSIONS_PER_MONTH)
        return history.mask_unpriced(change)


class LogReturn(Component):
    """Log return over the last `window` sessions; missing closes are forward-filled."""

    kind: Literal["return"] = "return"
    window: PositiveInt = 1  # sessions

    @property
    def name(self) -> str:
        """Name of the feature's column."""
        return f"return_{self.window}"

    def values(self, history: PriceHistory) -> NDArray[np.float64]:
        """Compute the feature at each session and symbol, (T, N)."""
        prices = np.log(history.last_closes())
        return history.mask_unpriced(prices - lag(prices, self.window))


class Drawdown(Component):
    """Close over the highest close of the last `window` sessions, minus one: from -1 to 0."""

    kind: Literal["drawdown"] = "drawdown"
    window: PositiveInt = 252  # sessions, including the current one

    @property
    def name(self) -> str:
        """Name of the feature's column."""
        return f"drawdown_{self.window}"

    def values(self, history: PriceHistory) -> NDArray[np.float64]:
        """Compute the feature at each session and symbol, (T, N)."""
        closes = history.last_closes()
        peaks = apply_rolling(closes, pl.all().rolling_max(self.window, min_samples=self.window))
        return history.mask_unpriced(closes / peaks - 1.0)


class AdjustedClose(Component):
    """Adjusted close in the currency of the price: a level, as FinRL observes it.

    Scalers take its mean and spread over the training; later prices may leave that range. The action `share_trades`
    reads it.
    """

    kind: Literal["adjusted_close"] = "adjusted_close"

    @property
    def name(self) -> str:
        """Name of the feature's column."""
        return "adjusted_close"

    def values(self, history: PriceHistory) -> NDArray[np.float64]:
        """Compute the feature at each session and symbol, (T, N)."""
        return history.closes
