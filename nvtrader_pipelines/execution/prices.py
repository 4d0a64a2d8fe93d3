"""Prices in account currency, to size and value shares; returns come from the panel alone."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nvtrader_pipelines.envs.fill_timing import FillTiming

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class PanelPrices:
    """Prices of a panel's names and sessions, adjusted as its returns are; NaN without a bar."""

    opens: FloatArray  # (T, N); the close for a bar without an open
    closes: FloatArray  # (T, N)
    last_closes: FloatArray  # (T, N) forward-filled closes, also from before the panel; NaN before the first close
    volumes: FloatArray  # (T, N) shares, adjusted as the prices are; NaN if unknown

    def fill_prices(self, fill: FillTiming) -> FloatArray:
        """Prices at which orders fill, (T, N)."""
        return self.opens if fill == "next_open" else self.closes
