"""A feature."""

from typing import Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray
from pydantic import Field

from nvtrader_pipelines.components.component import Component
from nvtrader_pipelines.market.history import PriceHistory, apply_rolling, lag


class Efficiency(Component):
    """Efficiency ratio: net log change over the window as a share of the path's length.

    Source: Kaufman (1995), Smarter Trading.
    """

    kind: Literal["efficiency"] = "efficiency"
    window: int = Field(21, ge=2, le=252)  # sessions

    @property
    def name(self) -> str:
        """Name of the feature's column."""
        return f"efficiency_{self.window}"

    def values(self, history: PriceHistory) -> NDArray[np.float64]:
        """Compute the feature at each session and symbol, (T, N)."""
        closes = history.last_closes()
        net = np.abs(np.log(history.closes / lag(closes, self.window)))
        daily = np.abs(np.log(closes / lag(closes, 1)))
        path = apply_rolling(daily, pl.all().rolling_sum(self.window))
        return np.divide(net, path, out=np.where(np.isnan(net), np.nan, 0.0), where=path > 0.0)
