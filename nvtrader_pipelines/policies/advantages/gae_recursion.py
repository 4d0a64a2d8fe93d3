"""Generalized advantages and returns, in PyTorch."""

import torch
from torch import Tensor

from nvtrader_pipelines.policies.advantages.episodes import Episodes


def generalized_advantages(episodes: Episodes, gamma: float, gae_lambda: float) -> tuple[Tensor, Tensor]:
    """Advantages, 0 where masked, and returns (advantage + value), both (E, T).

    A truncated episode is bootstrapped with the value of its last observation and a terminated one with zero, as in
    Stable-Baselines3; masked steps are skipped, as in NeMo-RL.
    """
    advantages = torch.zeros_like(episodes.rewards)
    advantage, next_value = torch.zeros_like(episodes.final_values), episodes.final_values
    for t in reversed(range(advantages.shape[1])):
        value, running = episodes.values[:, t], episodes.mask[:, t] > 0.0
        error = episodes.rewards[:, t] + gamma * next_value - value
        advantage = torch.where(running, error + gamma * gae_lambda * advantage, advantage)
        next_value = torch.where(running, value, next_value)
        advantages[:, t] = advantage
    return advantages * episodes.mask, advantages + episodes.values
