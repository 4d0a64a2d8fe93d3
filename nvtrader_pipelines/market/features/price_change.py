"""The price change over the last sessions."""

from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import PositiveInt

from nvtrader_pipelines.components.component import Component
from nvtrader_pipelines.market.history import PriceHistory, lagged


class LogReturn(Component):
    """Log return over the last `window` sessions; a missing day counts with its last known close."""

    kind: Literal["return"] = "return"
    window: PositiveInt = 1  # sessions

    @property
    def name(self) -> str:
        """The feature's column."""
        return f"return_{self.window}"

    def values(self, history: PriceHistory) -> NDArray[np.float64]:
        """The feature at each session and symbol, (T, N)."""
        prices = np.log(history.last_closes())
        return history.where_traded(prices - lagged(prices, self.window))
