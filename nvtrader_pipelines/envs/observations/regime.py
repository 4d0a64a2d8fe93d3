"""Observation with the market's regime, estimated from past sessions only."""

from typing import Annotated, ClassVar, Literal

import numpy as np
from pydantic import Field

from nvtrader_pipelines.components.component import Component
from nvtrader_pipelines.envs.observations.builder import ObservationBuilder, ObservationScaler
from nvtrader_pipelines.envs.observations.lookback import LookbackObservation
from nvtrader_pipelines.market.panel import MarketPanel


class RegimeObservation(Component):
    """Lookback observation with the market's trailing slope and a one-hot regime.

    The regime is the slope's position among quantiles of the training period, which the scaler stores. The labels of
    `gold.regimes` look ahead and are not used.
    """

    has_window: ClassVar[bool] = True  # whether there is a window of past returns

    kind: Literal["regime"] = "regime"
    aliases: ClassVar[tuple[str, ...]] = ("regime_aware", "RegimeAwareObservation")
    window: Annotated[int, Field(ge=3, le=252)] = 21  # sessions of the trailing slope
    n_regimes: Annotated[int, Field(ge=2, le=10)] = 4

    def fit(self, panel: MarketPanel, first: int, last: int) -> ObservationScaler:
        """Fit statistics over the sessions `first..last`, inclusive; those of the slope come last.

        Only slopes with their whole window inside count, so that nothing outside the training enters.

        Raises:
            ValueError: if no name is eligible, or the sessions are fewer than the slope's window.
        """
        from nvtrader_pipelines.envs.observations.regime_builder import trailing_slopes

        if last - first + 1 < self.window:
            raise ValueError(
                f"fitting the trailing slope needs {self.window} sessions, but from {panel.sessions[first]} to "
                f"{panel.sessions[last]} there are {last - first + 1}; lower the window or train for longer"
            )
        slopes = trailing_slopes(panel, self.window)[first + self.window - 1 : last + 1]
        lookback = LookbackObservation().fit(panel, first, last)
        return ObservationScaler(
            means=(*lookback.means, float(slopes.mean())),
            deviations=(*lookback.deviations, float(max(slopes.std(), 1e-8))),
            cuts=tuple(np.quantile(slopes, np.arange(1, self.n_regimes) / self.n_regimes).tolist()),
        )

    def start(self, panel: MarketPanel, scaler: ObservationScaler, lookback: int) -> ObservationBuilder:
        """Return the builder for one panel."""
        from nvtrader_pipelines.envs.observations.regime_builder import RegimeBuilder

        return RegimeBuilder(panel, scaler, lookback, self.window, self.n_regimes)
