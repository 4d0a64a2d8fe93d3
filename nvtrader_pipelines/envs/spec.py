"""Spec of the environment: its parameters and components."""

import operator
from dataclasses import dataclass
from typing import Annotated, Any, Self, cast

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from nvtrader_pipelines.components.component import Component
from nvtrader_pipelines.envs.actions import Action, SimplexAction
from nvtrader_pipelines.envs.fill_timing import FillTiming
from nvtrader_pipelines.envs.observations import LookbackObservation, Observation
from nvtrader_pipelines.envs.rewards import CvarExcess, LogGrowth, RewardTerm, VolatilityPenalty
from nvtrader_pipelines.envs.terminations import StopProperly, Termination
from nvtrader_pipelines.market.panel import MarketPanel
from nvtrader_pipelines.portfolio.costs import CostModel, ProportionalCost
from nvtrader_pipelines.portfolio.financing import STANDARD_FINANCING, FinancingModel


@dataclass(frozen=True)
class StartedAction:
    """Action on one panel, called with the accounts, which only some maps ask for."""

    map: Any  # an `AccountMap` if it needs the account, else an `ActionMap`
    needs_account: bool

    def __call__(
        self,
        actions: NDArray[np.floating],
        t: NDArray[np.int64],
        weights: NDArray[np.float64],
        equity: NDArray[np.float64],
    ) -> NDArray[np.float64]:
        """Return targets as an `ActionMap`, given held weights (n, N+1) and equity (n,), 1 at the opening."""
        return self.map(actions, t, weights, equity) if self.needs_account else self.map(actions, t)


class EnvSpec(Component):
    """Portfolio environment with a decision every `rebal_freq` sessions."""

    lookback: Annotated[int, Field(ge=5, le=60)] = 20  # sessions of returns observed
    episode_len: Annotated[int, Field(ge=20, le=120)] = 52  # decisions
    rebal_freq: Annotated[int, Field(ge=1, le=10)] = 5  # sessions between decisions
    turnover_cost_bps: Annotated[float, Field(ge=0.0, le=500.0)] = 10.0  # on the sum of absolute changes
    vol_penalty: Annotated[float, Field(ge=0.0, le=5.0)] = 0.5  # reward per unit of realized session volatility
    costs: tuple[CostModel, ...] = ()  # on top of turnover_cost_bps
    fill: FillTiming = "next_open"
    financing: Annotated[FinancingModel, Field(exclude_if=lambda model: model == STANDARD_FINANCING)] = (
        STANDARD_FINANCING  # rates on what exceeds a gross of 1; charged to levered and short accounts only
    )
    observation: Observation = LookbackObservation()
    action: Action = SimplexAction()
    rewards: tuple[RewardTerm, ...] = (LogGrowth(), CvarExcess())
    terminations: tuple[Termination, ...] = ()  # rules that end an episode early; not used in back-tests
    stop_properly: StopProperly | None = None  # change of the reward of truncated episodes
    pipeline: Annotated[bool, Field(exclude_if=operator.not_)] = (
        False  # train through the experiment's weight pipeline; with stop_properly, its cuts truncate episodes
    )

    @model_validator(mode="after")
    def _require_distinct_parts(self) -> Self:
        parts = {"rewards": self.rewards, "costs": self.costs, "terminations": self.terminations}
        kinds = {field: [part.kind for part in members] for field, members in parts.items()}
        for field, found in kinds.items():
            if len(set(found)) != len(found):
                raise ValueError(f"{field} must have each kind at most once, but they are {found}")
        if not self.rewards:
            raise ValueError(f"rewards must have at least one term, but they are {kinds['rewards']}")
        if "volatility_penalty" in kinds["rewards"] and self.vol_penalty > 0.0:
            raise ValueError("the volatility penalty is given twice: set vol_penalty to 0 or drop the term")
        if "proportional" in kinds["costs"] and self.turnover_cost_bps > 0.0:
            raise ValueError("the proportional cost is given twice: set turnover_cost_bps to 0 or drop the model")
        long_only = [kind for kind in kinds["rewards"] if kind in {"running_inventory", "implementation_shortfall"}]
        if self.is_levered and long_only:
            raise ValueError(
                f"{' and '.join(long_only)} knows neither financing nor a cap on gross, but the action "
                f"{self.action.kind} may borrow or sell short; choose other rewards, or a long-only action"
            )
        truncates = self.pipeline or any(rule.truncates for rule in self.terminations)
        if self.stop_properly is not None and not truncates:
            raise ValueError(
                f"stop_properly needs a termination that truncates, but none of {kinds['terminations']} does; add one, "
                "set truncates to true, train through the pipeline, or drop stop_properly"
            )
        return self

    @property
    def cost_models(self) -> tuple[CostModel, ...]:
        """All cost models, including that of `turnover_cost_bps`."""
        knob = (ProportionalCost(bps=self.turnover_cost_bps),) if self.turnover_cost_bps > 0.0 else ()
        return (*knob, *self.costs)

    @property
    def close_cap(self) -> float:
        """Cap on gross at a close; infinite for actions without one."""
        return getattr(self.action, "close_cap", np.inf)

    @property
    def is_levered(self) -> bool:
        """Whether an action may have a gross above 1 or short positions."""
        return getattr(self.action, "is_levered", False)

    @property
    def reward_terms(self) -> tuple[RewardTerm, ...]:
        """All terms of the reward, including that of `vol_penalty`."""
        penalty = (VolatilityPenalty(weight=self.vol_penalty),) if self.vol_penalty > 0.0 else ()
        return (*self.rewards, *penalty)

    def start_action(self, panel: MarketPanel) -> StartedAction:
        """Start the action on one panel; one that needs the account is given the environment, for its costs."""
        needs_account, start = getattr(self.action, "needs_account", False), cast("Any", self.action.start)
        return StartedAction(start(panel, self) if needs_account else start(panel), needs_account)
