"""Selectors: which names may be held."""

from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from nvtrader_pipelines.components import Component
from nvtrader_pipelines.market.panel import MarketPanel
from nvtrader_pipelines.portfolio.pipeline.stage import Select, Situation


class StaticUniverse(Component):
    """Every eligible name of the market."""

    kind: Literal["static_universe"] = "static_universe"

    def start(self, panel: MarketPanel) -> Select:  # noqa: ARG002 - one signature for the family
        """The stage on one panel."""

        def select(situation: Situation) -> tuple[NDArray[np.bool_], str]:
            return situation.panel.eligible[situation.t], ""

        return select


Selector = Annotated[StaticUniverse, Field(discriminator="kind")]
