"""Volatility of daily returns, and unusual trading volume."""

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


class VolumeScore(Component):
    """Z-score of log(1 + volume) over the last `window` sessions; 0 if volumes are equal."""

    kind: Literal["volume_score"] = "volume_score"
    window: int = Field(21, ge=3)  # sessions

    @property
    def name(self) -> str:
        """Name of the feature's column."""
        return f"volume_z_{self.window}"

    def values(self, history: PriceHistory) -> NDArray[np.float64]:
        """Compute the feature at each session and symbol, (T, N); NaN where volume is unknown."""
        needed = math.ceil(MIN_SHARE * self.window)
        volumes = np.log1p(history.volumes)
        mean = apply_rolling(volumes, pl.all().rolling_mean(self.window, min_samples=needed))
        spread = apply_rolling(volumes, pl.all().rolling_std(self.window, min_samples=needed, ddof=1))
        varied = spread > 1e-9  # below, it is rounding
        score = np.where(varied, (volumes - mean) / np.where(varied, spread, 1.0), 0.0)
        unknown = np.isnan(volumes) | np.isnan(spread)
        return history.mask_unpriced(np.where(unknown, np.nan, score))
