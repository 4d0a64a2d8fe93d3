"""Generalized advantages, and moments over unmasked steps as NVIDIA NeMo-RL defines them."""

import torch
from torch import Tensor

from nvtrader_pipelines.policies.advantages.episodes import Episodes

EPSILON = 1e-8  # as in NeMo-RL, added to counts and variances


def masked_mean(
    values: Tensor, mask: Tensor, dim: int | None = None, global_normalization_factor: Tensor | float | None = None
) -> Tensor:
    """Mean of `values` where `mask` is 1, 0 for an empty mask; a NaN propagates even if masked.

    `global_normalization_factor` replaces the count of this mask, for instance by that of a whole update.
    """
    count = mask.sum(dim) if global_normalization_factor is None else global_normalization_factor
    return (values * mask).sum(dim) / (count + EPSILON)


def masked_variance(values: Tensor, mask: Tensor, *, unbiased: bool) -> Tensor:
    """Variance of `values` where `mask` is 1; `unbiased` divides by their count less one."""
    variance = masked_mean((values - masked_mean(values, mask)).square(), mask)
    count = mask.sum()
    return variance * count / (count - 1.0).clamp_min(1.0) if unbiased else variance


def whiten(values: Tensor, mask: Tensor) -> Tensor:
    """Scale values to mean 0 and unbiased variance 1 where `mask` is 1; masked values become 0."""
    variance = masked_variance(values, mask, unbiased=True)
    return (values - masked_mean(values, mask)) * (variance + EPSILON).rsqrt() * mask


def normalize(values: Tensor, mask: Tensor) -> Tensor:
    """Scale values to mean 0 and biased variance 1 where `mask` is 1; masked values are scaled alike."""
    variance = masked_variance(values, mask, unbiased=False)
    return (values - masked_mean(values, mask)) / variance.clamp_min(EPSILON).sqrt()


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
