"""Observation for a network shared by all names: columns per name, and a context."""

from typing import ClassVar, Literal

from nvtrader_pipelines.components.component import Component
from nvtrader_pipelines.envs.observations.builder import ObservationBuilder, ObservationScaler
from nvtrader_pipelines.market.panel import MarketPanel
from nvtrader_pipelines.portfolio.anchors import Anchor, VolatilityTargetAnchor


class PerAssetObservation(Component):
    """Observation of 14 columns per name and 7 of context, for a network shared by all names.

    Columns per name are trends in units of its volatility, volatility, drawdown, ranks and weights. All scaling is
    fixed, so nothing is fitted. Needs momentum, return, volatility, drawdown and rank features.
    """

    has_window: ClassVar[bool] = False  # whether there is a window of past returns

    kind: Literal["per_asset"] = "per_asset"
    anchor: Anchor = VolatilityTargetAnchor()

    def fit(self, panel: MarketPanel, first: int, last: int) -> ObservationScaler:  # noqa: ARG002 - one signature
        """Return empty statistics, since all scaling is fixed."""
        return ObservationScaler()

    def start(
        self,
        panel: MarketPanel,
        scaler: ObservationScaler,  # noqa: ARG002 - one signature for the family
        lookback: int,  # noqa: ARG002
    ) -> ObservationBuilder:
        """Return the builder for one panel."""
        from nvtrader_pipelines.envs.observations.per_asset_builder import PerAssetBuilder

        return PerAssetBuilder(panel, self.anchor.weights(panel))
