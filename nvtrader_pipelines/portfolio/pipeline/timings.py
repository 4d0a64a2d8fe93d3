"""Timings: how much of the weights is held in the state the market and the account are in; the rest is cash."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from nvtrader_pipelines.components import Component
from nvtrader_pipelines.market.panel import MarketPanel, Window
from nvtrader_pipelines.portfolio.pipeline.stage import Adjust, FloatArray, Situation, Thresholds


@dataclass(frozen=True, eq=False)
class AccountPath:
    """What the unadjusted pipeline's own account did over the training sessions."""

    net_returns: NDArray[np.float64]  # (S,) of each session
    drawdown: NDArray[np.float64]  # (S,) at each close, positive fractions
    turnover: NDArray[np.float64]  # (D,) one-way, of each decision after the first


class ConstantTiming(Component):
    """A constant share of the weights."""

    kind: Literal["constant"] = "constant"
    needs_fit: ClassVar[bool] = False  # whether thresholds must be fitted before it is used
    needs_path: ClassVar[bool] = False  # whether fitting needs an account's path
    exposure: Annotated[float, Field(gt=0.0, le=1.0)] = 1.0

    def fit(self, panel: MarketPanel, windows: Sequence[Window], path: AccountPath | None) -> Thresholds:  # noqa: ARG002
        """Nothing is fitted."""
        return Thresholds()

    def start(self, panel: MarketPanel) -> Adjust:  # noqa: ARG002 - one signature for the family
        """The stage on one panel."""

        def adjust(weights: FloatArray, situation: Situation) -> tuple[FloatArray, str]:  # noqa: ARG001
            if self.exposure == 1.0:
                return weights, ""
            scaled = weights * self.exposure
            scaled[-1] = max(0.0, 1.0 - scaled[:-1].sum())
            return scaled, f"holds {self.exposure:.0%} of the weights"

        return adjust


Timing = Annotated[ConstantTiming, Field(discriminator="kind")]
