"""Turbulence: how unusual the returns of a session are in size or in their correlations."""

from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from nvtrader_pipelines.components.component import Component
from nvtrader_pipelines.market.history import PriceHistory, lag


class Turbulence(Component):
    """Squared Mahalanobis distance of a session's returns from `window` earlier sessions, the same for all names.

    Names with a price in the session that were listed throughout the window count, missing prices as the last ones.

    Source: Kritzman & Li (2010), "Skulls, Financial Turbulence, and Risk Management".
    """

    kind: Literal["turbulence"] = "turbulence"
    window: int = Field(251, ge=20)  # earlier sessions, more than names; 251 returns and this one need a year of prices

    @property
    def name(self) -> str:
        """Name of the feature's column."""
        return f"turbulence_{self.window}"

    def values(self, history: PriceHistory) -> NDArray[np.float64]:
        """Compute the feature at each session and symbol, (T, N)."""
        require_more_sessions_than_names("window", self.window, len(history.symbols))
        returns = np.nan_to_num(history.closes / lag(history.last_closes(), 1) - 1.0)
        is_compared = history.has_price & history.is_listed_for(self.window + 1)
        index = np.full((len(returns), 1), np.nan)
        for t in np.flatnonzero(is_compared.any(axis=1)):
            index[t] = squared_distance(returns[t - self.window : t + 1, is_compared[t]])
        return history.mask_unpriced(np.broadcast_to(index, returns.shape))


def squared_distance(returns: NDArray[np.float64]) -> float:
    """Squared Mahalanobis distance of the last row of (T, N) returns from the others, in directions that varied."""
    returns = np.ascontiguousarray(returns)
    past = returns[:-1]
    deviation = returns[-1] - past.mean(axis=0)
    precision = np.linalg.pinv(np.atleast_2d(np.cov(past, rowvar=False)), hermitian=True)
    return float(deviation @ precision @ deviation)


def require_more_sessions_than_names(field: str, n_sessions: int, n_names: int) -> None:
    """Raise ValueError if every session would be unusual, for want of earlier ones."""
    if n_sessions <= n_names:
        raise ValueError(
            f"turbulence needs more sessions of history than names, but {field} is {n_sessions} and the market has "
            f"{n_names} names; lengthen {field} or name fewer symbols"
        )
