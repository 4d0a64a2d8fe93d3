"""Anchors: simple causal portfolios that a residual policy tilts."""

from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, PositiveFloat

from nvtrader_pipelines.components.component import Component
from nvtrader_pipelines.components.family import Family
from nvtrader_pipelines.market.panel import MarketPanel
from nvtrader_pipelines.portfolio.cash import cash_beside


def market_returns(panel: MarketPanel) -> NDArray[np.float64]:
    """Mean close return of the tradable names at each session, (T,); 0 if there is none."""
    return _mean_return(panel, panel.tradable)


def equal_weight_returns(panel: MarketPanel) -> NDArray[np.float64]:
    """Close return of 1/N at each session, (T,): of the names that were eligible the session before; 0 if none was."""
    return _mean_return(panel, np.concatenate([panel.eligible[:1], panel.eligible[:-1]]))


def _mean_return(panel: MarketPanel, counted: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Mean close return (T,) of the names counted at each session (T, N)."""
    return np.where(counted, panel.close_returns, 0.0).sum(axis=1) / np.maximum(counted.sum(axis=1), 1)


def trailing_windows(values: NDArray[np.float64], window: int) -> NDArray[np.float64]:
    """Views of the last `window` values up to each t, (T, window); padded with the first value."""
    padded = np.concatenate([np.repeat(values[:1], window - 1), values])
    return np.lib.stride_tricks.sliding_window_view(padded, window)


def fill_with_cash(weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """Set the last column to one less the names, never below 0 by rounding."""
    weights[:, -1] = cash_beside(weights[:, :-1])
    return weights


def equal_weights(panel: MarketPanel) -> NDArray[np.float64]:
    """Equal weights of eligible names, (T, N+1), cash last; all cash if none is eligible."""
    weights = np.zeros((len(panel.sessions), len(panel.symbols) + 1))
    counted = panel.eligible.sum(axis=1, keepdims=True)
    weights[:, :-1] = panel.eligible / np.maximum(counted, 1)
    return fill_with_cash(weights)


class EqualWeightAnchor(Component):
    """1/N over the eligible names."""

    kind: Literal["equal_weight"] = "equal_weight"

    def weights(self, panel: MarketPanel) -> NDArray[np.float64]:
        """Compute the weights (T, N+1), cash last; row t depends on rows up to t."""
        return equal_weights(panel)


class VolatilityTargetAnchor(Component):
    """1/N scaled down to a volatility target, never above gross 1; the rest is cash.

    Source: Moreira & Muir (2017), capped at gross 1.
    """

    kind: Literal["volatility_target"] = "volatility_target"
    volatility: PositiveFloat = 0.15  # per year
    window: Annotated[int, Field(ge=2)] = 21  # sessions

    def weights(self, panel: MarketPanel) -> NDArray[np.float64]:
        """Compute the weights (T, N+1), cash last; row t depends on rows up to t."""
        weights = equal_weights(panel)
        deviation = trailing_windows(equal_weight_returns(panel), self.window).std(axis=1, ddof=1)
        realized = deviation * np.sqrt(panel.calendar.periods_per_year)
        weights[:, :-1] *= np.minimum(1.0, self.volatility / np.maximum(realized, 1e-8))[:, None]
        return fill_with_cash(weights)


Anchor = Annotated[EqualWeightAnchor | VolatilityTargetAnchor, Field(discriminator="kind"), Family("anchors")]
