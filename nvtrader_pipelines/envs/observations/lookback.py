"""Default observation: a window of log returns, features, held weights and drawdown."""

from typing import ClassVar, Literal

import numpy as np

from nvtrader_pipelines.components.component import Component
from nvtrader_pipelines.envs.observations.builder import ObservationBuilder, ObservationScaler
from nvtrader_pipelines.market.panel import MarketPanel


class LookbackObservation(Component):
    """Window of each name's log returns, features, held weights with cash, and drawdown.

    Returns and features are centered and scaled by statistics of the training period, one pair per feature.
    """

    has_window: ClassVar[bool] = True  # whether there is a window of past returns

    kind: Literal["lookback"] = "lookback"

    def fit(self, panel: MarketPanel, first: int, last: int) -> ObservationScaler:
        """Fit statistics over the sessions `first..last`, inclusive, and the eligible names.

        Raises:
            ValueError: if no name is eligible in the window.
        """
        eligible = panel.eligible[first : last + 1]
        if not eligible.any():
            raise ValueError(
                f"fitting the observation needs eligible names, but none is from {panel.sessions[first]} to "
                f"{panel.sessions[last]}; choose another window"
            )
        columns = [np.log1p(panel.close_returns[first : last + 1])[eligible]]
        columns += [panel.features[first : last + 1, :, k][eligible] for k in range(panel.features.shape[2])]
        return ObservationScaler(
            means=tuple(float(column.mean()) for column in columns),
            deviations=tuple(float(max(column.std(), 1e-8)) for column in columns),
        )

    def start(self, panel: MarketPanel, scaler: ObservationScaler, lookback: int) -> ObservationBuilder:
        """Return the builder for one panel."""
        from nvtrader_pipelines.envs.observations.lookback_builder import LookbackBuilder

        return LookbackBuilder(panel, scaler, lookback)
