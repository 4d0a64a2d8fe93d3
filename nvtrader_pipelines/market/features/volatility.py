"""Volatility of daily returns."""

import math
from typing import Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray
from pydantic import Field

from nvtrader_pipelines.components.component import Component
from nvtrader_pipelines.market.history import PriceHistory, apply_rolling

MIN_SHARE = 0.8  # share of the window's returns that must be known; missing ones are left out, never filled


class Volatility(Component):
    """Standard deviation (ddof 1) of daily log returns over the last `window` sessions."""

    kind: Literal["volatility"] = "volatility"
    window: int = Field(21, ge=3)  # sessions

    @property
    def name(self) -> str:
        """Name of the feature's column."""
        return f"volatility_{self.window}"

    def values(self, history: PriceHistory) -> NDArray[np.float64]:
        """Compute the feature at each session and symbol, (T, N)."""
        needed = math.ceil(MIN_SHARE * self.window)
        spread = apply_rolling(history.log_returns(), pl.all().rolling_std(self.window, min_samples=needed, ddof=1))
        return np.where(history.is_listed_for(self.window), history.mask_unpriced(spread), np.nan)
