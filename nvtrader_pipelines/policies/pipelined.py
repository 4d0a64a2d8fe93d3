"""A policy behind the weight pipeline: its weights are a proposal, and what comes out is what is traded."""

from dataclasses import replace
from typing import Self

from nvtrader_pipelines.envs.account import Account
from nvtrader_pipelines.market.panel import MarketPanel
from nvtrader_pipelines.policies.policy import Decision, Policy
from nvtrader_pipelines.portfolio.pipeline import Situation, Thresholds, WeightPipeline
from nvtrader_pipelines.portfolio.pipeline.pipeline import Run
from nvtrader_pipelines.portfolio.pipeline.timings import ConstantTiming


def without_timing(pipeline: WeightPipeline) -> WeightPipeline:
    """The pipeline that holds the weights whole, whatever the state of the market and the account."""
    return pipeline.model_copy(update={"timing": ConstantTiming()})


class StartedPipeline:
    """A pipeline, started once on the panel it meets: its stages are pure, so that many accounts share what they know.

    On another panel it is started anew.
    """

    def __init__(self, pipeline: WeightPipeline) -> None:
        self._pipeline = pipeline
        self._started: tuple[MarketPanel, Run] | None = None

    def on(self, panel: MarketPanel) -> Run:
        """What makes target weights of proposals on a panel."""
        if self._started is None or self._started[0] is not panel:
            self._started = panel, self._pipeline.start(panel)
        return self._started[1]


class PipelinedPolicy:
    """A policy and the pipeline its proposals go through, with the thresholds fitted before it decides.

    Accounts side by side may share the `started` pipeline.
    """

    def __init__(
        self,
        policy: Policy,
        pipeline: WeightPipeline,
        thresholds: Thresholds,
        started: StartedPipeline | None = None,
    ) -> None:
        self._policy, self._pipeline, self._thresholds = policy, pipeline, thresholds
        self._started = started or StartedPipeline(pipeline)

    def decide(self, panel: MarketPanel, t: int, account: Account) -> Decision:
        """The weights wanted at the close of session `t`, after every stage."""
        proposed = self._policy.decide(panel, t, account)
        if proposed.target is None:
            return proposed
        situation = Situation(panel, t, account.weights, account.drawdown, account.recent_returns, self._thresholds)
        result = self._started.on(panel)(proposed.target, situation)
        return replace(proposed, target=result.weights, pipeline=result)

    @property
    def without_timing(self) -> Self:
        """The same policy through the pipeline without its timing, for an account of its own.

        One that remembers must not decide for the other account too.
        """
        return type(self)(self._policy, without_timing(self._pipeline), Thresholds())
