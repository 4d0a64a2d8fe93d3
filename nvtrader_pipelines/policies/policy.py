"""Policies, from the market and the account at a close to a decision, and the base of agents that give them."""

from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from nvtrader_pipelines.components.arrays import without_labels
from nvtrader_pipelines.components.component import Component
from nvtrader_pipelines.envs.account import Account
from nvtrader_pipelines.market.panel import MarketPanel
from nvtrader_pipelines.portfolio.pipeline import PipelineResult


@dataclass(frozen=True, eq=False)
class Decision:
    """Target weights of a policy at one close, with a learned policy's action and its estimates."""

    target: NDArray[np.float64] | None  # (N+1,) weights, cash last; None: no trade
    action: NDArray[np.float32] | None = None  # the network's raw output
    observation_hash: int | None = None
    value: float | None = None  # the critic's estimate
    log_prob: float | None = None  # of the action under the policy's distribution
    pipeline: PipelineResult | None = None  # the stages that made the target of a proposal
    reason: str = ""  # why a policy that could trade does not

    def __post_init__(self) -> None:
        """Raise if the target has labels."""
        object.__setattr__(self, "target", without_labels(self.target, "a target"))

    @property
    def reasons(self) -> str:
        """Reasons of the policy and of the pipeline's stages, as one line; empty if there is none."""
        stages = self.pipeline.stages if self.pipeline else ()
        named = (f"{stage.name}: {stage.reason}" for stage in stages if stage.reason)
        return "; ".join([*filter(None, [self.reason]), *named])


class Policy(Protocol):
    """Map from history and account to target weights; it reads no row of the panel after `t`."""

    def decide(self, panel: MarketPanel, t: int, account: Account) -> Decision:
        """Return target weights at the close of session `t`."""
        ...


class BaseAgent(Component):
    """Properties of an agent, a learner or a rule, that gives the policies of an experiment."""

    is_stateful: ClassVar[bool] = False  # decisions of a policy depend on its earlier ones
    is_tunable: ClassVar[bool] = False  # trains a normal actor from nothing, which dpo can tune
    is_tuned: ClassVar[bool] = False  # from the policies of another run
    min_seeds: ClassVar[int] = 1  # of an experiment

    @property
    def lookback(self) -> int:
        """Sessions that a decision's estimate uses, including the session of the decision."""
        return 1

    def rule_policy(self) -> Policy | None:
        """Return the policy of a rule for one account; None for an agent whose policies are trained."""
        return None

    def shorten(self, max_timesteps: int) -> Self:  # noqa: ARG002 - a rule trains nothing
        """Return a copy whose trainings have at most so many steps."""
        return self

    def member(self, position: int) -> Any:  # noqa: ARG002 - an ensemble's members take turns
        """Agent that trains the seed at a position of the experiment's seeds."""
        return self

    def require_market(self, panel: MarketPanel) -> None:
        """Raise if the agent can never act on this market; most accept any.

        Raises:
            ValueError: with what it lacks.
        """
