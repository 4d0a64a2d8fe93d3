"""Generalised advantage estimation."""

from typing import Annotated, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from nvtrader_pipelines.components import Component
from nvtrader_pipelines.policies.advantages.episodes import Episodes, Estimate
from nvtrader_pipelines.policies.advantages.masked import whitened


class GaeAdvantage(Component):
    """Exponentially weighted errors of the critic, in reward (Schulman et al. 2016); the only one with a critic."""

    uses_critic: ClassVar[bool] = True
    least_group_size: ClassVar[int] = 1

    kind: Literal["gae"] = "gae"
    gae_lambda: Annotated[float, Field(ge=0.0, le=1.0)] = 0.9
    normalize: bool = True  # to mean 0 and variance 1 over all steps of an update

    def estimate(self, episodes: Episodes, gamma: float) -> Estimate:
        """Advantages of the steps and the critic's targets, which are never normalised."""
        advantages, returns = generalized_advantages(episodes, gamma, self.gae_lambda)
        return Estimate(whitened(advantages, episodes.mask) if self.normalize else advantages, returns)


def generalized_advantages(episodes: Episodes, gamma: float, gae_lambda: float) -> tuple[Tensor, Tensor]:
    """Advantages, 0 under the mask, and returns (advantage + value), both (E, T).

    A truncated episode is worth its last observation's value beyond its end and a terminated one nothing, as in
    Stable-Baselines3; steps under the mask are passed over, as in NeMo-RL.
    """
    advantages = torch.zeros_like(episodes.rewards)
    carried, following = torch.zeros_like(episodes.final_values), episodes.final_values
    for t in reversed(range(advantages.shape[1])):
        value, taken = episodes.values[:, t], episodes.mask[:, t] > 0.0
        error = episodes.rewards[:, t] + gamma * following - value
        carried = torch.where(taken, error + gamma * gae_lambda * carried, carried)
        following = torch.where(taken, value, following)
        advantages[:, t] = carried
    return advantages * episodes.mask, advantages + episodes.values
