"""Allocators: from a policy's proposal to weights over the selected names and cash."""

from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from nvtrader_pipelines.components import Component
from nvtrader_pipelines.market.panel import MarketPanel
from nvtrader_pipelines.portfolio.pipeline.stage import Allocate, FloatArray, Situation


class PolicyAction(Component):
    """The policy's own weights."""

    kind: Literal["policy_action"] = "policy_action"

    def start(self, panel: MarketPanel) -> Allocate:  # noqa: ARG002 - one signature for the family
        """The stage on one panel."""

        def allocate(
            proposal: FloatArray,
            selected: NDArray[np.bool_],  # noqa: ARG001
            situation: Situation,  # noqa: ARG001
        ) -> tuple[FloatArray, str]:
            return proposal, ""

        return allocate


Allocator = Annotated[PolicyAction, Field(discriminator="kind")]
