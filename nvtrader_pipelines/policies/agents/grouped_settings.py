"""Settings of a training on grouped episodes."""

from typing import Annotated, Self

from pydantic import Field, PositiveFloat, PositiveInt, model_validator

from nvtrader_pipelines.policies.advantages import Advantage, ReinforcePlusPlusAdvantage
from nvtrader_pipelines.policies.agents.on_policy import ActorCriticLearner


class GroupedSettings(ActorCriticLearner):
    """Episodes in groups that share their start, and how the policy learns from them."""

    n_groups: PositiveInt = 8  # starts of an update
    group_size: PositiveInt = 8  # episodes from each start
    advantage: Advantage = ReinforcePlusPlusAdvantage()
    n_epochs: Annotated[int, Field(ge=1, le=30)] = 4
    n_minibatches: PositiveInt = 2  # of an epoch, of equal size up to one step
    clip_range: Annotated[float, Field(gt=0.0, lt=1.0)] = 0.2  # how far a probability ratio may fall below 1
    clip_range_high: PositiveFloat = 0.2  # and rise above it

    @model_validator(mode="after")
    def _groups_suffice(self) -> Self:
        if self.n_portfolios < 2:
            raise ValueError("n_groups times group_size must be at least 2: one episode has none to be compared with")
        least = self.advantage.least_group_size
        if self.group_size < least:
            raise ValueError(
                f"{self.advantage.kind} compares the episodes of a group, so group_size must be at least {least}, "
                f"but it is {self.group_size}"
            )
        return self

    @property
    def n_portfolios(self) -> int:
        """How many portfolios are played side by side."""
        return self.n_groups * self.group_size
