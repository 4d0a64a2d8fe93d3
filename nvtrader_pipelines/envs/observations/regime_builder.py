"""Builder of the observation with the market's regime."""

import numpy as np
from numpy.typing import NDArray

from nvtrader_pipelines.envs.observations.builder import CLIP, ObservationLayout, ObservationScaler
from nvtrader_pipelines.envs.observations.lookback_builder import LookbackBuilder
from nvtrader_pipelines.market.panel import MarketPanel
from nvtrader_pipelines.portfolio.anchors import market_returns


class RegimeBuilder(LookbackBuilder):
    """Builder of returns, features, slope, regimes, N+1 weights and drawdown."""

    def __init__(
        self, panel: MarketPanel, scaler: ObservationScaler, lookback: int, window: int, n_regimes: int
    ) -> None:
        of_names = ObservationScaler(means=scaler.means[:-1], deviations=scaler.deviations[:-1])
        super().__init__(panel, of_names, lookback)
        market = regime_columns(panel, scaler, window, n_regimes)
        self._features = np.hstack([self._features, market])  # rows of the market's columns
        self.length += market.shape[1]
        self.layout = ObservationLayout(self.length, len(panel.symbols), lookback)


def trailing_slopes(panel: MarketPanel, window: int) -> NDArray[np.float64]:
    """Least-squares slope of the equal-weight log index over `window` sessions, (T,).

    The index is flat before the first session. Row t depends on the `window - 1` returns up to t alone, to the last
    bit.
    """
    steps = np.arange(window) - 0.5 * (window - 1)
    of_levels = steps / (steps @ steps)
    of_returns = np.cumsum(of_levels[::-1])[::-1][1:]  # a return is part of every level from its session on
    returns = np.concatenate([np.zeros(window - 2), np.log1p(market_returns(panel))])
    return (np.lib.stride_tricks.sliding_window_view(returns, window - 1) * of_returns).sum(axis=1)


def regime_columns(panel: MarketPanel, scaler: ObservationScaler, window: int, n_regimes: int) -> NDArray[np.float32]:
    """Scaled slope and one-hot regime, steepest fall first, (T, 1 + n_regimes)."""
    slopes = trailing_slopes(panel, window)
    mean, deviation = (scaler.means[-1], scaler.deviations[-1]) if scaler.means else (0.0, 1.0)
    regimes = np.searchsorted(np.asarray(scaler.cuts), slopes, side="left")
    scaled = np.clip((slopes - mean) / deviation, -CLIP, CLIP)
    return np.column_stack([scaled, np.eye(n_regimes)[regimes]]).astype(np.float32)
