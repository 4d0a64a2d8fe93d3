"""Parts of a package of one's own that look ahead or write, each next to the component that it spoils."""

from dataclasses import replace
from typing import ClassVar, Literal

import numpy as np

from nvtrader_pipelines.components.component import Component
from nvtrader_pipelines.envs.actions import SimplexAction
from nvtrader_pipelines.envs.observations import LookbackObservation, ObservationScaler
from nvtrader_pipelines.envs.rewards.term import Stateless
from nvtrader_pipelines.policies.agents import Fit
from nvtrader_pipelines.policies.baselines import BuyAndHold, ClassicalAgent
from nvtrader_pipelines.policies.policy import Decision
from nvtrader_pipelines.portfolio.anchors import EqualWeightAnchor
from nvtrader_pipelines.portfolio.costs import ProportionalCost
from nvtrader_pipelines.portfolio.pipeline.allocators import PolicyAction
from nvtrader_pipelines.portfolio.pipeline.limits import PositionCap
from nvtrader_pipelines.portfolio.pipeline.selectors import StaticUniverse
from nvtrader_pipelines.portfolio.pipeline.stage import add_cash, scale_exposure
from nvtrader_pipelines.portfolio.pipeline.timings import ConstantTiming


def next_returns(panel, t):
    """Returns (N,) of the session after `t`."""
    return panel.close_returns[np.minimum(t + 1, len(panel.sessions) - 1)]


def tomorrow(panel):
    """Market in which each row has the returns, and the eligible names, of the next session."""
    return replace(
        panel,
        close_returns=np.roll(panel.close_returns, -1, axis=0),
        eligible=panel.eligible & np.roll(panel.eligible, -1, axis=0),
    )


class PeekFeature(Component):
    """Return of the next session, of closes, highs or lows."""

    kind: Literal["peek"] = "peek"
    name: str = "peek"
    prices: str = "closes"

    def values(self, history):
        prices = getattr(history, self.prices)
        return np.append(prices[1:] / prices[:-1] - 1.0, prices[:1] * 0.0, axis=0)


class PeekReward(Component):
    """Best return of the session after the step."""

    kind: Literal["peek"] = "peek"
    weight: float = 1.0

    def start(self, panel, n_accounts):
        return Stateless(
            lambda outcome: (
                self.weight * next_returns(panel, outcome.t + outcome.transition.session_growth.shape[1]).max(axis=1)
            )
        )


class PeekTrainingReward(PeekReward):
    """Best return of the session after the step, where it is in the training window."""

    looks_ahead: ClassVar[bool] = True


class PeekObservation(LookbackObservation):
    """Observation of the next session."""

    def start(self, panel, scaler, lookback):
        return super().start(tomorrow(panel), scaler, lookback)


class PeekScaler(LookbackObservation):
    """Observation with statistics of the whole market."""

    def fit(self, panel, first, last):
        return super().fit(panel, first, len(panel.sessions) - 1)


class PeekAction(SimplexAction):
    """Weights of names that are still eligible at the next session."""

    def start(self, panel):
        return super().start(tomorrow(panel))


class PeekAnchor(EqualWeightAnchor):
    """Equal weights of names that are still eligible at the next session."""

    def weights(self, panel):
        return super().weights(tomorrow(panel))


class PeekCost(ProportionalCost):
    """Cost that grows with the market's move at the session of the fill."""

    def start(self, panel):
        cost = super().start(panel)
        return lambda trades, filled_at: cost(trades, filled_at) * (1.0 + np.abs(panel.close_returns[filled_at]).sum(1))


class PeekSelector(StaticUniverse):
    """Names that rise at the next session."""

    def start(self, panel):
        return lambda at: (panel.eligible[at.t] & (next_returns(panel, at.t) > 0.0), "falls tomorrow")


class PeekAllocator(PolicyAction):
    """The proposal's exposure in the names that rise most at the next session."""

    def start(self, panel):
        def allocate(selection, at):
            scores = np.where(selection.names, np.exp(next_returns(panel, at.t)), 0.0)
            return add_cash(selection.exposure * scores / max(scores.sum(), 1.0)), "tomorrow's returns"

        return allocate


class PeekTiming(ConstantTiming):
    """Half the exposure if the market falls at the next session."""

    def start(self, panel):
        def adjust(weights, at):
            share = 1.0 / (1.0 + np.exp(-100.0 * next_returns(panel, at.t).sum()))
            return scale_exposure(weights, share), "tomorrow's returns"

        return adjust


class PeekLimit(PositionCap):
    """Half the exposure if the market falls at the next session."""

    def start(self, panel, risk_limits):
        return PeekTiming().start(panel)


class PeekRule(ClassicalAgent):
    """All in the name that rises most at the next session."""

    kind: Literal["peek_rule"] = "peek_rule"

    def start(self):
        return self

    def decide(self, panel, t, account):
        scores = np.where(panel.eligible[t], np.exp(next_returns(panel, t)), 0.0)
        return Decision(target=add_cash(scores / max(scores.sum(), 1.0)))


class OwnRule(ClassicalAgent):
    """Rule that keeps the contract; no package lists it as an agent."""

    kind: Literal["own_rule"] = "own_rule"

    def start(self):
        return BuyAndHold().start()


class PeekTraining(BuyAndHold):
    """Agent whose training reads the market after its window."""

    def train(self, panel, env, window, seed, hooks=None):
        import torch

        return Fit({"mean": torch.tensor(panel.close_returns.mean())}, ObservationScaler(), [])


class WritingFeature(PeekFeature):
    """Feature that fills missing prices in the history itself."""

    kind: Literal["writing"] = "writing"
    name: str = "writing"

    def values(self, history):
        history.closes[np.isnan(history.closes)] = 1.0
        return history.closes


class WritingReward(PeekReward):
    """Reward that removes losses from the market itself."""

    def start(self, panel, n_accounts):
        returns = panel.close_returns
        returns[returns < 0.0] = 0.0
        return super().start(panel, n_accounts)


class WritingObservation(LookbackObservation):
    """Observation that scales the market's features in place."""

    def start(self, panel, scaler, lookback):
        np.multiply(panel.features, 2.0, out=panel.features)
        return super().start(panel, scaler, lookback)


class WritingRule(PeekRule):
    """Rule that raises the returns that it is judged on."""

    def decide(self, panel, t, account):
        panel.close_returns[:] += 0.01
        return super().decide(panel, t, account)
