"""Distance from the recent peak."""

from typing import Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray
from pydantic import PositiveInt

from nvtrader_pipelines.components.component import Component
from nvtrader_pipelines.market.history import PriceHistory, apply_rolling


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
