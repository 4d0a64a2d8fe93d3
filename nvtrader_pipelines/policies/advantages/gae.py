"""Generalised advantage estimation."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from nvtrader_pipelines.components.component import Component
from nvtrader_pipelines.policies.advantages.episodes import Episodes, Estimate


class GaeAdvantage(Component):
    """Exponentially weighted errors of the critic, in reward (Schulman et al. 2016); the only one with a critic."""

    uses_critic: ClassVar[bool] = True
    least_group_size: ClassVar[int] = 1

    kind: Literal["gae"] = "gae"
    gae_lambda: Annotated[float, Field(ge=0.0, le=1.0)] = 0.9
    normalize: bool = True  # to mean 0 and variance 1 over all steps of an update

    def estimate(self, episodes: Episodes, gamma: float) -> Estimate:
        """Advantages of the steps and the critic's targets, which are never normalised."""
        from nvtrader_pipelines.policies.advantages.generalized import generalized_advantages
        from nvtrader_pipelines.policies.advantages.masked import whitened

        advantages, returns = generalized_advantages(episodes, gamma, self.gae_lambda)
        return Estimate(whitened(advantages, episodes.mask) if self.normalize else advantages, returns)
