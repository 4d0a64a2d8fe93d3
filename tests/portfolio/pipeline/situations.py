"""Situations of a weight pipeline, and stages with short histories for small markets."""

import numpy as np

from nvtrader_pipelines.market.panel import MarketPanel
from nvtrader_pipelines.portfolio.pipeline import Situation, Thresholds, WeightPipeline
from nvtrader_pipelines.portfolio.pipeline.allocators import (
    EqualWeightAllocator,
    MeanCvarTilt,
    MinimumVarianceAllocator,
    PolicyAction,
)
from nvtrader_pipelines.portfolio.pipeline.cufolio_allocator import CufolioAllocator
from nvtrader_pipelines.portfolio.pipeline.gymrl_guard import GymrlGuard
from nvtrader_pipelines.portfolio.pipeline.limits import (
    GrossExposure,
    NetExposure,
    PartialAdjustment,
    PositionCap,
    SectorCap,
    TurnoverLimit,
)
from nvtrader_pipelines.portfolio.pipeline.loss_shutdown import LossShutdown
from nvtrader_pipelines.portfolio.pipeline.regime_guard import RegimeGuard
from nvtrader_pipelines.portfolio.pipeline.selectors import Liquidity, LowVolatility, MomentumTopK, StaticUniverse
from nvtrader_pipelines.portfolio.pipeline.timings import ConstantTiming, VolatilityTargetTiming
from nvtrader_pipelines.portfolio.pipeline.turbulence import TurbulenceTiming

SECTORS = {
    **dict.fromkeys(("AAA", "BBB"), "tech"),
    **dict.fromkeys(("CCC", "DDD", "HHH"), "oil"),
    **dict.fromkeys(("EEE", "FFF", "GGG"), "banks"),
}
ESTIMATE = {"history": 40, "estimate_every": 5}
SELECTORS = [
    StaticUniverse(),
    Liquidity(window=20, min_traded=0.9, min_volume_score=-0.1),
    LowVolatility(lowest_fraction=0.5),
    MomentumTopK(k=2),
]
ALLOCATORS = [
    PolicyAction(),
    EqualWeightAllocator(),
    MinimumVarianceAllocator(**ESTIMATE),
    MeanCvarTilt(**ESTIMATE),
    CufolioAllocator(history=63, n_scenarios=1000, cufolio_hold_days=10),
]
TIMINGS = [
    ConstantTiming(exposure=0.9),
    TurbulenceTiming(threshold=None, history=30, cooldown=2, cooldown_scale=0.3),
    RegimeGuard(),
    VolatilityTargetTiming(volatility=0.05),
    LossShutdown(),
    GymrlGuard(max_drawdown=0.05),
]
LIMITS = [
    TurnoverLimit(),
    PartialAdjustment(share=0.4),
    PositionCap(max_position=0.2),
    SectorCap(sectors=SECTORS, max_sector=0.35),
    GrossExposure(max_gross=0.8),
    NetExposure(max_net=0.7),
]
FITTED = Thresholds(turbulence=5.0, drawdown=0.05, trailing_return=-0.02, turnover=0.3)


def cash(n_symbols) -> np.ndarray:
    """Weights of an account in cash."""
    return np.append(np.zeros(n_symbols), 1.0)


def situation(
    panel: MarketPanel,
    t=100,
    held=None,
    drawdown=0.0,
    recent_returns=None,
    thresholds=FITTED,
    rebal_freq=5,
    since_loss=None,
) -> Situation:
    """Build the situation at the close of session `t`, by default of a new account."""
    held = cash(len(panel.symbols)) if held is None else np.array(held)
    recent = np.zeros(63) if recent_returns is None else np.array(recent_returns)
    since = None if since_loss is None else np.array(since_loss)
    return Situation(panel, t, held, drawdown, recent, thresholds, rebal_freq, since)


def result_of(pipeline: WeightPipeline, proposal, at: Situation):
    """Run the pipeline once on the situation's panel."""
    return pipeline.start(at.panel)(np.array(proposal), at)


def stage(pipeline: WeightPipeline, name: str, proposal, at: Situation):
    """Run the pipeline and return one stage."""
    return next(each for each in result_of(pipeline, proposal, at).stages[1:] if each.name == name)
