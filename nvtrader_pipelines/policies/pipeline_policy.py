"""Policies behind the weight pipeline, which turns proposed weights into target weights."""

from dataclasses import replace
from typing import Self

from nvtrader_pipelines.envs.account import Account, holds, situation_of
from nvtrader_pipelines.market.panel import MarketPanel
from nvtrader_pipelines.policies.policy import Decision, Policy
from nvtrader_pipelines.portfolio.pipeline import Thresholds, WeightPipeline
from nvtrader_pipelines.portfolio.pipeline.allocators import PolicyAction
from nvtrader_pipelines.portfolio.pipeline.pipeline import Run
from nvtrader_pipelines.portfolio.pipeline.selectors import StaticUniverse
from nvtrader_pipelines.portfolio.pipeline.timings import ConstantTiming


def without_timing(pipeline: WeightPipeline) -> WeightPipeline:
    """Return the pipeline with constant timing: fully invested in every market state."""
    return pipeline.model_copy(update={"timing": ConstantTiming()})


def limits_only(pipeline: WeightPipeline) -> WeightPipeline:
    """Return the pipeline with its limits alone; a partial adjustment is a rule of the policy's trading, no limit."""
    limits = tuple(limit for limit in pipeline.limits if limit.risk_limit is not None)
    stages = {"selector": StaticUniverse(), "allocator": PolicyAction(), "timing": ConstantTiming(), "limits": limits}
    return pipeline.model_copy(update=stages)


class SharedPipeline:
    """Weight pipeline that accounts share: its stages are stateless and start once per panel."""

    def __init__(self, pipeline: WeightPipeline) -> None:
        self._pipeline = pipeline
        self._started: tuple[MarketPanel, Run] | None = None

    def start(self, panel: MarketPanel) -> Run:
        """Start the pipeline on a panel, or return the one already started on it."""
        if self._started is None or self._started[0] is not panel:
            self._started = panel, self._pipeline.start(panel)
        return self._started[1]


class PipelinedPolicy:
    """Policy that decides every `rebal_freq` sessions, through a weight pipeline with fitted thresholds."""

    def __init__(
        self,
        policy: Policy,
        pipeline: WeightPipeline,
        thresholds: Thresholds,
        rebal_freq: int,
        shared: SharedPipeline | None = None,
    ) -> None:
        self._policy, self._pipeline, self._thresholds, self._rebal_freq = policy, pipeline, thresholds, rebal_freq
        self._shared = shared or SharedPipeline(pipeline)

    def decide(self, panel: MarketPanel, t: int, account: Account) -> Decision:
        """Return target weights at the close of session `t`, after every stage; no trade where a stage holds."""
        proposed = self._policy.decide(panel, t, account)
        if proposed.target is None:
            return proposed
        situation = situation_of(account, panel, t, self._thresholds, self._rebal_freq)
        result = self._shared.start(panel)(proposed.target, situation)
        target = None if holds(result.weights, proposed.target, account) else result.weights
        return replace(proposed, target=target, pipeline=result)

    @property
    def without_timing(self) -> Self:
        """Policy with constant timing, for a second account; a stateful policy must not serve both accounts."""
        return type(self)(self._policy, without_timing(self._pipeline), Thresholds(), self._rebal_freq)
