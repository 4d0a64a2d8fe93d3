"""The weight pipeline: select, allocate, time, limit; back-test, replay, paper and live trade all call this one."""

from collections.abc import Callable
from typing import Self

import numpy as np
from pydantic import model_validator

from nvtrader_pipelines.components import Component
from nvtrader_pipelines.market.panel import MarketPanel
from nvtrader_pipelines.portfolio.pipeline.allocators import Allocator, PolicyAction
from nvtrader_pipelines.portfolio.pipeline.limits import GrossExposure, Limit, PositionCap
from nvtrader_pipelines.portfolio.pipeline.risk_limits import RiskLimits
from nvtrader_pipelines.portfolio.pipeline.selectors import Selector, StaticUniverse
from nvtrader_pipelines.portfolio.pipeline.stage import FloatArray, PipelineResult, Situation, StageWeights
from nvtrader_pipelines.portfolio.pipeline.timings import ConstantTiming, Timing

Run = Callable[[FloatArray, Situation], PipelineResult]


class WeightPipeline(Component):
    """What becomes of a policy's weights before they are traded; every stage is pure."""

    selector: Selector = StaticUniverse()
    allocator: Allocator = PolicyAction()
    timing: Timing = ConstantTiming()
    limits: tuple[Limit, ...] = (PositionCap(), GrossExposure())  # one after the other
    risk_limits: RiskLimits = RiskLimits()

    @model_validator(mode="after")
    def _limits_are_no_looser(self) -> Self:
        kinds = [limit.kind for limit in self.limits]
        if len(set(kinds)) != len(kinds) or not {"position_cap", "gross_exposure"} <= set(kinds):
            raise ValueError(
                f"limits must name position_cap and gross_exposure, and each kind once, but they are {kinds}"
            )
        for limit in self.limits:
            own, most = getattr(limit, limit.risk_limit), getattr(self.risk_limits, limit.risk_limit)
            if own is not None and own > most:
                raise ValueError(
                    f"limits.{limit.kind}.{limit.risk_limit} is {own}, looser than the {most} of "
                    f"risk_limits.{limit.risk_limit}, above which compliance stops a plan; "
                    "lower the one or raise the other"
                )
        return self

    def start(self, panel: MarketPanel) -> Run:
        """The pipeline on one panel: a proposal (N+1,) and the situation it is made in to target weights."""
        select, allocate = self.selector.start(panel), self.allocator.start(panel)
        time = self.timing.start(panel)
        limits = [(limit, limit.start(panel, self.risk_limits)) for limit in self.limits]

        def run(proposal: FloatArray, situation: Situation) -> PipelineResult:
            stages, truncated = [StageWeights("policy", proposal)], False
            selected, reason = select(situation)
            weights = _without(proposal, selected)
            stages.append(StageWeights(self.selector.kind, weights, reason))
            weights, reason = allocate(weights, selected, situation)
            stages.append(StageWeights(self.allocator.kind, weights, reason))
            weights, reason = time(weights, situation)
            stages.append(StageWeights(self.timing.kind, weights, reason))
            for limit, adjust in limits:
                weights, reason = adjust(weights, situation)
                stages.append(StageWeights(limit.kind, weights, reason))
                truncated |= limit.mark_truncated and bool(reason)
            return PipelineResult(tuple(stages), truncated)

        return run


def _without(weights: FloatArray, selected: np.ndarray) -> FloatArray:
    """The weights with those of names not selected in cash; the same array where there are none."""
    if not weights[:-1][~selected].any():
        return weights
    kept = np.append(np.where(selected, weights[:-1], 0.0), 0.0)
    kept[-1] = max(0.0, 1.0 - kept[:-1].sum())
    return kept
