"""Generalized advantage estimation."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from nvtrader_pipelines.components.component import Component
from nvtrader_pipelines.policies.advantages.episodes import Episodes, Estimate


class GaeAdvantage(Component):
    """Generalized advantage estimation (Schulman et al. 2016); the only estimator with a critic."""

    uses_critic: ClassVar[bool] = True
    min_group_size: ClassVar[int] = 1

    kind: Literal["gae"] = "gae"
    aliases: ClassVar[tuple[str, ...]] = ("GAEAdvantage",)
    gae_lambda: Annotated[float, Field(ge=0.0, le=1.0)] = 0.9
    normalize: bool = True  # to mean 0 and variance 1 over all steps of an update

    def estimate(self, episodes: Episodes, gamma: float) -> Estimate:
        """Estimate advantages and the critic's targets, which are never normalized."""
        from nvtrader_pipelines.policies.advantages.masked import generalized_advantages, whiten

        advantages, returns = generalized_advantages(episodes, gamma, self.gae_lambda)
        return Estimate(whiten(advantages, episodes.mask) if self.normalize else advantages, returns)
