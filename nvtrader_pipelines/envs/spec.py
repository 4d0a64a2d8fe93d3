"""The environment as a frozen spec: its knobs, components and what they need of a panel."""

from typing import Annotated, Self

from pydantic import Field, model_validator

from nvtrader_pipelines.components.component import Component
from nvtrader_pipelines.envs.actions import Action, SimplexAction
from nvtrader_pipelines.envs.dynamics import FillTiming
from nvtrader_pipelines.envs.observations import LookbackObservation, Observation
from nvtrader_pipelines.envs.rewards import CvarExcess, LogGrowth, RewardTerm, VolatilityPenalty
from nvtrader_pipelines.envs.terminations import StopProperly, Termination
from nvtrader_pipelines.portfolio.costs import CostModel, ProportionalCost


class EnvSpec(Component):
    """The portfolio environment: one decision every `rebal_freq` sessions, filled at `fill`, paid for, held."""

    lookback: Annotated[int, Field(ge=5, le=60)] = 20  # sessions of returns observed
    episode_len: Annotated[int, Field(ge=20, le=120)] = 52  # decisions
    rebal_freq: Annotated[int, Field(ge=1, le=10)] = 5  # sessions between decisions
    turnover_cost_bps: Annotated[float, Field(ge=0.0, le=50.0)] = 10.0  # on the sum of absolute changes
    vol_penalty: Annotated[float, Field(ge=0.0, le=5.0)] = 0.5  # reward per unit of realised session volatility
    costs: tuple[CostModel, ...] = ()  # on top of turnover_cost_bps
    fill: FillTiming = "next_open"
    observation: Observation = LookbackObservation()
    action: Action = SimplexAction()
    rewards: tuple[RewardTerm, ...] = (LogGrowth(), CvarExcess())
    terminations: tuple[Termination, ...] = ()  # rules that end an episode early; a back-test has no episodes
    stop_properly: StopProperly | None = None  # what a truncating one makes of the episode's reward

    @model_validator(mode="after")
    def _terms_are_distinct(self) -> Self:
        kinds = [term.kind for term in self.rewards]
        if not kinds or len(set(kinds)) != len(kinds):
            raise ValueError(f"rewards must name each term once and at least one, but they are {kinds}")
        if "volatility_penalty" in kinds and self.vol_penalty > 0.0:
            raise ValueError("the volatility penalty is given twice: set vol_penalty to 0 or drop the term")
        return self

    @model_validator(mode="after")
    def _costs_are_distinct(self) -> Self:
        kinds = [model.kind for model in self.costs]
        if len(set(kinds)) != len(kinds):
            raise ValueError(f"costs must name each model at most once, but they are {kinds}")
        if "proportional" in kinds and self.turnover_cost_bps > 0.0:
            raise ValueError("the proportional cost is given twice: set turnover_cost_bps to 0 or drop the model")
        return self

    @model_validator(mode="after")
    def _terminations_are_distinct(self) -> Self:
        kinds = [rule.kind for rule in self.terminations]
        if len(set(kinds)) != len(kinds):
            raise ValueError(f"terminations must name each rule at most once, but they are {kinds}")
        if self.stop_properly is not None and not any(rule.truncates for rule in self.terminations):
            raise ValueError(
                f"stop_properly shapes episodes that a termination truncates, but the terminations are {kinds} and "
                "none truncates: add one or set its truncates to true, or drop stop_properly"
            )
        return self

    @property
    def cost_models(self) -> tuple[CostModel, ...]:
        """All models of what trades cost, the `turnover_cost_bps` knob included."""
        knob = (ProportionalCost(bps=self.turnover_cost_bps),) if self.turnover_cost_bps > 0.0 else ()
        return (*knob, *self.costs)

    def scale_costs(self, factor: float) -> Self:
        """The same environment in which every trade costs `factor` times as much."""
        models = tuple(model.scale(factor) for model in self.cost_models)
        return self.model_copy(update={"turnover_cost_bps": 0.0, "costs": models})

    @property
    def reward_terms(self) -> tuple[RewardTerm, ...]:
        """All terms of the reward, the `vol_penalty` knob included."""
        penalty = (VolatilityPenalty(weight=self.vol_penalty),) if self.vol_penalty > 0.0 else ()
        return (*self.rewards, *penalty)
