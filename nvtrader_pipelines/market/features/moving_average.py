"""Distance of the close to its moving averages and Bollinger bands, and MACD; all relative to the close."""

import math
from typing import Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray
from pydantic import Field, PositiveInt

from nvtrader_pipelines.components.component import Component
from nvtrader_pipelines.market.features.volatility import MIN_SHARE
from nvtrader_pipelines.market.history import PriceHistory, apply_rolling


class MovingAverage(Component):
    """Distance of the close to its mean over the last `window` sessions, over the close."""

    kind: Literal["sma"] = "sma"
    window: int = Field(30, ge=2)  # sessions

    @property
    def name(self) -> str:
        """Name of the feature's column."""
        return f"sma_{self.window}"

    def values(self, history: PriceHistory) -> NDArray[np.float64]:
        """Compute the feature at each session and symbol, (T, N)."""
        return 1.0 - _mean_and_spread(history, self.window)[0] / history.closes


class BollingerBand(Component):
    """Distance of the close to a Bollinger band, over the close; negative below the band.

    The band is `width` standard deviations (ddof 1) above or below the mean of the window's closes.

    Source: Bollinger (2001); ddof of stockstats and FinRL.
    """

    kind: Literal["bollinger"] = "bollinger"
    band: Literal["upper", "lower"] = "upper"
    window: int = Field(20, ge=2)  # sessions
    width: float = Field(2.0, ge=0.25, le=10.0, multiple_of=0.25)  # standard deviations, in quarters

    @property
    def name(self) -> str:
        """Name of the feature's column."""
        return f"bollinger_{self.band}_{self.window}_{self.width:g}".replace(".", "_")

    def values(self, history: PriceHistory) -> NDArray[np.float64]:
        """Compute the feature at each session and symbol, (T, N)."""
        mean, spread = _mean_and_spread(history, self.window)
        sign = 1.0 if self.band == "upper" else -1.0
        return 1.0 - (mean + sign * self.width * spread) / history.closes


class MACD(Component):
    """MACD over the close: its line, the line's signal, or line minus signal, the histogram.

    The line is the fast less the slow exponential mean of closes, the signal the line's exponential mean. Weights
    (1 - 2/(window + 1))^age over all known bars are normalized to sum to one; sessions without a price are left out.

    Source: Appel (2005), Technical Analysis; weights of stockstats and FinRL.
    """

    kind: Literal["macd"] = "macd"
    part: Literal["line", "signal", "histogram"] = "line"
    fast: PositiveInt = 12  # sessions
    slow: PositiveInt = 26  # sessions
    signal: PositiveInt = 9  # sessions, of the line

    @property
    def name(self) -> str:
        """Name of the feature's column."""
        return f"macd_{self.part}_{self.fast}_{self.slow}_{self.signal}"

    def values(self, history: PriceHistory) -> NDArray[np.float64]:
        """Compute the feature at each session and symbol, (T, N)."""
        line = _exponential_mean(history.closes, self.fast) - _exponential_mean(history.closes, self.slow)
        signal = _exponential_mean(line, self.signal)
        value = {"line": line, "signal": signal, "histogram": line - signal}[self.part]
        needed = max(self.fast, self.slow) + (0 if self.part == "line" else self.signal - 1)
        return np.where(history.has_price.cumsum(axis=0) >= needed, value / history.closes, np.nan)


def _mean_and_spread(history: PriceHistory, window: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Mean and standard deviation of the window's known closes, 80 % at least, (T, N) each."""
    needed = math.ceil(MIN_SHARE * window)
    mean = apply_rolling(history.closes, pl.all().rolling_mean(window, min_samples=needed))
    spread = apply_rolling(history.closes, pl.all().rolling_std(window, min_samples=needed, ddof=1))
    return np.where(history.is_listed_for(window - 1), mean, np.nan), spread


def _exponential_mean(values: NDArray[np.float64], span: int) -> NDArray[np.float64]:
    return apply_rolling(values, pl.all().ewm_mean(span=span, adjust=True, ignore_nulls=True, min_samples=1))
