"""Generalised advantages and returns, in PyTorch."""

import torch
from torch import Tensor

from nvtrader_pipelines.policies.advantages.episodes import Episodes


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
