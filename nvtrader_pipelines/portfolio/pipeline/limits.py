"""Limits: what no portfolio may exceed; what is cut goes to cash."""

from typing import Annotated, ClassVar, Literal

import numpy as np
from pydantic import Field

from nvtrader_pipelines.components import Component
from nvtrader_pipelines.market.panel import MarketPanel
from nvtrader_pipelines.portfolio.pipeline.risk_limits import RiskLimits, Share
from nvtrader_pipelines.portfolio.pipeline.stage import Adjust, FloatArray, Situation


class PositionCap(Component):
    """No name weighs more than the cap."""

    kind: Literal["position_cap"] = "position_cap"
    risk_limit: ClassVar[str] = "max_position"  # the field of the risk limits that it may not be looser than
    max_position: Share | None = None  # None: the risk limits'
    mark_truncated: bool = True  # whether a cut is marked in the result

    def start(self, panel: MarketPanel, risk_limits: RiskLimits) -> Adjust:  # noqa: ARG002 - one signature
        """The stage on one panel."""
        cap = risk_limits.max_position if self.max_position is None else self.max_position

        def adjust(weights: FloatArray, situation: Situation) -> tuple[FloatArray, str]:
            over = weights[:-1] > cap
            if not over.any():
                return weights, ""
            cut = np.append(np.minimum(weights[:-1], cap), 0.0)
            cut[-1] = max(0.0, 1.0 - cut[:-1].sum())
            names = ", ".join(np.array(situation.panel.symbols)[over])
            return cut, f"{names} cut to {cap:.1%}"

        return adjust


class GrossExposure(Component):
    """The names together weigh no more than the limit."""

    kind: Literal["gross_exposure"] = "gross_exposure"
    risk_limit: ClassVar[str] = "max_gross"
    max_gross: Share | None = None  # sum of absolute weights; None: the risk limits'
    mark_truncated: bool = True

    def start(self, panel: MarketPanel, risk_limits: RiskLimits) -> Adjust:  # noqa: ARG002
        """The stage on one panel."""
        most = risk_limits.max_gross if self.max_gross is None else self.max_gross

        def adjust(weights: FloatArray, situation: Situation) -> tuple[FloatArray, str]:  # noqa: ARG001
            gross = float(np.abs(weights[:-1]).sum())
            if gross <= most + ROUNDING:
                return weights, ""
            cut = weights * (most / gross)
            cut[-1] = max(0.0, 1.0 - cut[:-1].sum())
            return cut, f"gross {gross:.1%} cut to {most:.1%}"

        return adjust


ROUNDING = 1e-12  # of a sum of weights
Limit = Annotated[PositionCap | GrossExposure, Field(discriminator="kind")]
