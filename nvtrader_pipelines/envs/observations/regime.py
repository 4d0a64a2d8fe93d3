"""An observation that knows the market's regime as far as it can be known: from the sessions behind it."""

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
    """The lookback observation, the market's trailing slope, and in which regime that lies, one column for each.

    The regime is where the slope lies among quantiles of the training period, which the scaler keeps. The labels of
    `gold.regimes` are known only afterwards and no part of it.
    """

    has_window: ClassVar[bool] = True  # of past returns, for networks that read one

    kind: Literal["regime"] = "regime"
    window: Annotated[int, Field(ge=3, le=252)] = 21  # sessions of the trailing slope
    n_regimes: Annotated[int, Field(ge=2, le=10)] = 4

    def fit(self, panel: MarketPanel, first: int, last: int) -> ObservationScaler:
        """Statistics over the sessions `first..last`, inclusive; those of the slope come last.

        Only slopes whose whole window is inside count, so that nothing from outside the training enters.

        Raises:
            ValueError: if no name is eligible, or the sessions are fewer than the slope's window.
        """
        if last - first + 1 < self.window:
            raise ValueError(
                f"the trailing slope of {self.window} sessions needs as many to be fitted on, but from "
                f"{panel.sessions[first]} to {panel.sessions[last]} there are {last - first + 1}; lower the "
                "observation's window or train on a longer period"
            )
        slopes = trailing_slopes(panel, self.window)[first + self.window - 1 : last + 1]
        found = LookbackObservation().fit(panel, first, last)
        return ObservationScaler(
            means=(*found.means, float(slopes.mean())),
            deviations=(*found.deviations, float(max(slopes.std(), 1e-8))),
            cuts=tuple(np.quantile(slopes, np.arange(1, self.n_regimes) / self.n_regimes).tolist()),
        )

    def start(self, panel: MarketPanel, scaler: ObservationScaler, lookback: int) -> "RegimeBuilder":
        """The builder on one panel."""
        return RegimeBuilder(panel, scaler, lookback, self)


class RegimeBuilder(LookbackBuilder):
    """Observations of (lookback * N returns, N * F features, slope, regimes, N+1 weights, 1 drawdown) columns."""

    def __init__(
        self, panel: MarketPanel, scaler: ObservationScaler, lookback: int, observation: RegimeObservation
    ) -> None:
        of_names = ObservationScaler(means=scaler.means[:-1], deviations=scaler.deviations[:-1])
        super().__init__(panel, of_names, lookback)
        market = regime_columns(panel, scaler, observation)
        self._features = np.hstack([self._features, market])  # rows of what the market alone decides
        self.length += market.shape[1]
        self.layout = ObservationLayout(self.length, len(panel.symbols), lookback)


def trailing_slopes(panel: MarketPanel, window: int) -> NDArray[np.float64]:
    """Least-squares slope of the equally weighted log index over the last `window` sessions, (T,), per session.

    Before the first session the index counts as flat. Row t uses the `window - 1` returns up to t, and gives the same
    bits whatever came before them or comes after.
    """
    steps = np.arange(window) - 0.5 * (window - 1)
    of_levels = steps / (steps @ steps)
    of_returns = np.cumsum(of_levels[::-1])[::-1][1:]  # a return is in every level from its own on
    returns = np.concatenate([np.zeros(window - 2), np.log1p(market_returns(panel))])
    return (np.lib.stride_tricks.sliding_window_view(returns, window - 1) * of_returns).sum(axis=1)


def regime_columns(
    panel: MarketPanel, scaler: ObservationScaler, observation: RegimeObservation
) -> NDArray[np.float32]:
    """The scaled slope and a one for the regime, the steepest fall first, (T, 1 + n_regimes)."""
    slopes = trailing_slopes(panel, observation.window)
    mean, deviation = (scaler.means[-1], scaler.deviations[-1]) if scaler.means else (0.0, 1.0)
    regimes = np.searchsorted(np.asarray(scaler.cuts), slopes, side="left")
    scaled = np.clip((slopes - mean) / deviation, -CLIP, CLIP)
    return np.column_stack([scaled, np.eye(observation.n_regimes)[regimes]]).astype(np.float32)
