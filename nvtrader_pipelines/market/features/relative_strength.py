"""Relative strength index."""

from typing import ClassVar, Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray
from pydantic import Field

from nvtrader_pipelines.components.component import Component
from nvtrader_pipelines.market.history import PriceHistory, apply_rolling, lag


class RelativeStrength(Component):
    """Wilder's relative strength index, 0 to 100; 50 if the price never moved.

    Gains and losses are averaged with weights (1 - 1/window)^age over all known bars, normalized to sum to
    one; sessions without a price are left out.

    Source: Wilder (1978), New Concepts in Technical Trading Systems.
    """

    kind: Literal["relative_strength"] = "relative_strength"
    aliases: ClassVar[tuple[str, ...]] = ("rsi",)
    window: int = Field(14, ge=2)  # sessions

    @property
    def name(self) -> str:
        """Name of the feature's column."""
        return f"rsi_{self.window}"

    def values(self, history: PriceHistory) -> NDArray[np.float64]:
        """Compute the feature at each session and symbol, (T, N)."""
        change = history.closes - lag(history.last_closes(), 1)
        mean = pl.all().ewm_mean(alpha=1.0 / self.window, adjust=True, ignore_nulls=True, min_samples=self.window)
        gain = apply_rolling(np.where(np.isnan(change), np.nan, np.maximum(change, 0.0)), mean)
        loss = apply_rolling(np.where(np.isnan(change), np.nan, np.maximum(-change, 0.0)), mean)
        moved = gain + loss > 0.0
        strength = np.where(moved, 100.0 * gain / np.where(moved, gain + loss, 1.0), 50.0)
        return history.mask_unpriced(np.where(np.isnan(gain), np.nan, strength))
