"""Features of highs and lows: commodity channel index and directional index."""

import math
from typing import Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray
from pydantic import Field

from nvtrader_pipelines.components.component import Component
from nvtrader_pipelines.market.features.volatility import MIN_SHARE
from nvtrader_pipelines.market.history import PriceHistory, apply_rolling, forward_fill, lag


class CommodityChannelIndex(Component):
    """Commodity channel index: distance of the typical price to its mean, over 0.015 mean deviations.

    The typical price is the mean of high, low and close, known in 80 % of the window; 0 if it never moved.

    Source: Lambert (1980), Commodity Channel Index.
    """

    kind: Literal["cci"] = "cci"
    window: int = Field(30, ge=2)  # sessions

    @property
    def name(self) -> str:
        """Name of the feature's column."""
        return f"cci_{self.window}"

    def values(self, history: PriceHistory) -> NDArray[np.float64]:
        """Compute the feature at each session and symbol, (T, N); NaN where high or low is unknown."""
        _require_ranges(history, self.kind)
        typical = (history.highs + history.lows + history.closes) / 3.0
        rolling = pl.all().rolling_mean(self.window, min_samples=math.ceil(MIN_SHARE * self.window))
        mean = np.where(history.is_listed_for(self.window - 1), apply_rolling(typical, rolling), np.nan)
        total, n_known = np.zeros((2, *typical.shape))
        for age in range(self.window):  # one by one, since (T, N, window) may not fit in memory
            distance = np.abs(lag(typical, age) - mean)
            n_known += ~np.isnan(distance)
            total += np.nan_to_num(distance)
        deviation = total / np.maximum(n_known, 1.0)
        moved = deviation > 1e-9 * mean  # below, it is rounding
        return (typical - mean) / np.where(moved, 0.015 * deviation, np.inf)


class DirectionalIndex(Component):
    """Wilder's directional index (DX), 0 to 100: strength of a trend up or down; 0 without any move.

    A move is the larger of the rise of the high and the fall of the low, if positive; up and down are averaged with
    weights (1 - 1/window)^age over all known bars, normalized to sum to one.

    Source: Wilder (1978), New Concepts in Technical Trading Systems; weights of stockstats and FinRL.
    """

    kind: Literal["dx"] = "dx"
    window: int = Field(14, ge=2)  # sessions; FinRL's is 30

    @property
    def name(self) -> str:
        """Name of the feature's column."""
        return f"dx_{self.window}"

    def values(self, history: PriceHistory) -> NDArray[np.float64]:
        """Compute the feature at each session and symbol, (T, N); NaN where high or low is unknown."""
        _require_ranges(history, self.kind)
        rise = history.highs - lag(forward_fill(history.highs), 1)
        fall = lag(forward_fill(history.lows), 1) - history.lows
        unknown = np.isnan(rise) | np.isnan(fall)
        mean = pl.all().ewm_mean(alpha=1.0 / self.window, adjust=True, ignore_nulls=True, min_samples=self.window)
        ups, downs = (
            apply_rolling(np.where(unknown, np.nan, np.where((move > other) & (move > 0.0), move, 0.0)), mean)
            for move, other in ((rise, fall), (fall, rise))
        )
        moves = ups + downs
        return history.mask_unpriced(100.0 * np.abs(ups - downs) / np.where(moves == 0.0, 1.0, moves))


def _require_ranges(history: PriceHistory, kind: str) -> None:
    if np.isnan(history.highs).all() or np.isnan(history.lows).all():
        raise ValueError(f"{kind} needs highs and lows, but the source has none; deliver them, or drop the feature")
