"""Settings of a training on grouped episodes."""

from typing import Annotated, Self

from pydantic import Field, PositiveFloat, PositiveInt, model_validator

from nvtrader_pipelines.policies.advantages import Advantage, ReinforcePlusPlusAdvantage
from nvtrader_pipelines.policies.agents.on_policy import ActorCriticLearner


class GroupedSettings(ActorCriticLearner):
    """Settings of groups of episodes with a common start, and of the updates on them."""

    n_groups: PositiveInt = 8  # starts per update
    group_size: PositiveInt = 8  # episodes from each start
    advantage: Advantage = ReinforcePlusPlusAdvantage()
    n_epochs: Annotated[int, Field(ge=1, le=30)] = 4
    n_minibatches: PositiveInt = 2  # per epoch, of equal size up to one step
    clip_range: Annotated[float, Field(gt=0.0, lt=1.0)] = 0.2  # the probability ratio is clipped at 1 - clip_range
    clip_range_high: PositiveFloat = 0.2  # and at 1 + clip_range_high

    @model_validator(mode="after")
    def _require_group_size(self) -> Self:
        if self.n_portfolios < 2:
            raise ValueError("n_groups * group_size must be at least 2, since one episode has no baseline, but is 1")
        if self.group_size < self.advantage.min_group_size:
            raise ValueError(
                f"{self.advantage.kind} compares the episodes of a group, so group_size must be at least "
                f"{self.advantage.min_group_size}, but it is {self.group_size}"
            )
        return self

    @property
    def n_portfolios(self) -> int:
        """Number of parallel portfolios."""
        return self.n_groups * self.group_size
