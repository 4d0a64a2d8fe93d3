"""Price change over the last sessions."""

from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import PositiveInt

from nvtrader_pipelines.components.component import Component
from nvtrader_pipelines.market.history import PriceHistory, lag


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
