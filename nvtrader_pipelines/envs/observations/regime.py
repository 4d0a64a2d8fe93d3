"""Observation with the market's regime, estimated from past sessions only."""

from typing import Annotated, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from nvtrader_pipelines.components.component import Component
from nvtrader_pipelines.envs.observations.builder import CLIP, ObservationLayout, ObservationScaler
from nvtrader_pipelines.envs.observations.lookback import LookbackBuilder, LookbackObservation
from nvtrader_pipelines.market.panel import MarketPanel
from nvtrader_pipelines.portfolio.anchors import market_returns


class RegimeObservation(Component):
    """Lookback observation with the market's trailing slope and a one-hot regime.

    The regime is the slope's position among quantiles of the training period, which the scaler stores. The labels of
    `gold.regimes` look ahead and are not used.
    """

    has_window: ClassVar[bool] = True  # whether there is a window of past returns

    kind: Literal["regime"] = "regime"
    window: Annotated[int, Field(ge=3, le=252)] = 21  # sessions of the trailing slope
    n_regimes: Annotated[int, Field(ge=2, le=10)] = 4

    def fit(self, panel: MarketPanel, first: int, last: int) -> ObservationScaler:
        """Fit statistics over the sessions `first..last`, inclusive; those of the slope come last.

        Only slopes with their whole window inside count, so that nothing outside the training enters.

        Raises:
            ValueError: if no name is eligible, or the sessions are fewer than the slope's window.
        """
        if last - first + 1 < self.window:
            raise ValueError(
                f"fitting the trailing slope needs {self.window} sessions, but from {panel.sessions[first]} to "
                f"{panel.sessions[last]} there are {last - first + 1}; lower the window or train for longer"
            )
        slopes = trailing_slopes(panel, self.window)[first + self.window - 1 : last + 1]
        found = LookbackObservation().fit(panel, first, last)
        return ObservationScaler(
            means=(*found.means, float(slopes.mean())),
            deviations=(*found.deviations, float(max(slopes.std(), 1e-8))),
            cuts=tuple(np.quantile(slopes, np.arange(1, self.n_regimes) / self.n_regimes).tolist()),
        )

    def start(self, panel: MarketPanel, scaler: ObservationScaler, lookback: int) -> "RegimeBuilder":
        """Return the builder for one panel."""
        return RegimeBuilder(panel, scaler, lookback, self)


class RegimeBuilder(LookbackBuilder):
    """Builder of returns, features, slope, regimes, N+1 weights and drawdown."""

    def __init__(
        self, panel: MarketPanel, scaler: ObservationScaler, lookback: int, observation: RegimeObservation
    ) -> None:
        of_names = ObservationScaler(means=scaler.means[:-1], deviations=scaler.deviations[:-1])
        super().__init__(panel, of_names, lookback)
        market = regime_columns(panel, scaler, observation)
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


def regime_columns(
    panel: MarketPanel, scaler: ObservationScaler, observation: RegimeObservation
) -> NDArray[np.float32]:
    """Scaled slope and one-hot regime, steepest fall first, (T, 1 + n_regimes)."""
    slopes = trailing_slopes(panel, observation.window)
    mean, deviation = (scaler.means[-1], scaler.deviations[-1]) if scaler.means else (0.0, 1.0)
    regimes = np.searchsorted(np.asarray(scaler.cuts), slopes, side="left")
    scaled = np.clip((slopes - mean) / deviation, -CLIP, CLIP)
    return np.column_stack([scaled, np.eye(observation.n_regimes)[regimes]]).astype(np.float32)
