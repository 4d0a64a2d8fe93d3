"""Market timing: which share of the weights is invested, by state of market and account."""

from typing import Annotated, Literal

import numpy as np
from pydantic import Field, PositiveFloat

from nvtrader_pipelines.components.family import Family
from nvtrader_pipelines.market.panel import MarketPanel
from nvtrader_pipelines.portfolio.pipeline.gymrl_guard import GymrlGuard
from nvtrader_pipelines.portfolio.pipeline.loss_shutdown import LossShutdown
from nvtrader_pipelines.portfolio.pipeline.regime_guard import RegimeGuard
from nvtrader_pipelines.portfolio.pipeline.stage import (
    Adjust,
    FloatArray,
    Situation,
    UnfittedTiming,
    require_finite,
    scale_exposure,
)
from nvtrader_pipelines.portfolio.pipeline.turbulence import TurbulenceTiming


class ConstantTiming(UnfittedTiming):
    """Constant share of the weights."""

    kind: Literal["constant"] = "constant"
    exposure: Annotated[float, Field(gt=0.0, le=1.0)] = 1.0  # share of the weights

    def start(self, panel: MarketPanel) -> Adjust:  # noqa: ARG002 - one signature for the family
        """Return the stage for one panel."""

        def adjust(weights: FloatArray, situation: Situation) -> tuple[FloatArray, str]:  # noqa: ARG001
            if self.exposure == 1.0:
                return weights, ""
            return scale_exposure(weights, self.exposure), f"{self.exposure:.0%} of the weights"

        return adjust


class VolatilityTargetTiming(UnfittedTiming):
    """Weights scaled down to a volatility target; the rest is cash.

    The volatility is that of the allocator's weights, had they been held over the last `window` sessions, where an
    anchor's is that of 1/N. Before the market has so many, the window is padded with its first session, as an anchor's.

    Source: Moreira & Muir (2017), capped at the weights' own exposure.
    """

    kind: Literal["volatility_target"] = "volatility_target"
    volatility: PositiveFloat = 0.15  # per year
    window: Annotated[int, Field(ge=2)] = 21  # sessions

    @property
    def lookback(self) -> int:
        """Sessions of the window."""
        return self.window

    def start(self, panel: MarketPanel) -> Adjust:
        """Return the stage for one panel.

        Raises:
            ValueError: if the panel is shorter than the window.
        """
        if len(panel.sessions) < self.window:
            raise ValueError(
                f"volatility_target needs a market of at least its window of {self.window} sessions, but it has "
                f"{len(panel.sessions)}; shorten window or deliver a longer history"
            )
        ages = np.arange(self.window)[::-1]

        def adjust(weights: FloatArray, situation: Situation) -> tuple[FloatArray, str]:
            t = situation.t
            returns = panel.close_returns[np.maximum(t - ages, 0)]  # 0 without a price: valued at the last one
            require_finite(returns, panel.symbols, f"returns up to {panel.sessions[t]}")
            realized = float((returns @ weights[:-1]).std(ddof=1)) * panel.calendar.periods_per_year**0.5
            if realized <= self.volatility:
                return weights, ""
            share = self.volatility / realized
            reason = f"volatility of {realized:.1%}, above {self.volatility:.1%}: {share:.0%} of the weights"
            return scale_exposure(weights, share), reason

        return adjust


Timing = Annotated[
    ConstantTiming | TurbulenceTiming | RegimeGuard | VolatilityTargetTiming | LossShutdown | GymrlGuard,
    Field(discriminator="kind"),
    Family("timings"),
]
