"""Market timing: which share of the weights is invested, by state of market and account."""

from collections.abc import Sequence
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from nvtrader_pipelines.components.component import Component
from nvtrader_pipelines.components.family import Family
from nvtrader_pipelines.market.panel import MarketPanel, Window
from nvtrader_pipelines.portfolio.fitted_thresholds import Thresholds
from nvtrader_pipelines.portfolio.pipeline.regime_guard import RegimeGuard
from nvtrader_pipelines.portfolio.pipeline.stage import AccountPath, Adjust, FloatArray, Situation, scale_exposure
from nvtrader_pipelines.portfolio.pipeline.turbulence import TurbulenceTiming


class ConstantTiming(Component):
    """Constant share of the weights."""

    kind: Literal["constant"] = "constant"
    needs_fit: ClassVar[bool] = False  # whether thresholds must be fitted before use
    needs_path: ClassVar[bool] = False  # whether fitting needs an account's path
    history: ClassVar[int] = 0  # earlier sessions of the market that fitting needs
    exposure: Annotated[float, Field(gt=0.0, le=1.0)] = 1.0  # share of the weights

    def require_sessions(self, panel: MarketPanel, windows: Sequence[Window], rebal_freq: int) -> None:
        """Accept any training, since nothing is fitted."""

    def fit(self, panel: MarketPanel, windows: Sequence[Window], paths: Sequence[AccountPath]) -> Thresholds:  # noqa: ARG002
        """Return no thresholds."""
        return Thresholds()

    def start(self, panel: MarketPanel) -> Adjust:  # noqa: ARG002 - one signature for the family
        """Return the stage for one panel."""

        def adjust(weights: FloatArray, situation: Situation) -> tuple[FloatArray, str]:  # noqa: ARG001
            if self.exposure == 1.0:
                return weights, ""
            return scale_exposure(weights, self.exposure), f"{self.exposure:.0%} of the weights"

        return adjust


Timing = Annotated[ConstantTiming | TurbulenceTiming | RegimeGuard, Field(discriminator="kind"), Family("timings")]
