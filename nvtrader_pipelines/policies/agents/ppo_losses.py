"""Losses of proximal policy optimization, per step and unreduced."""

import torch
from torch import Tensor


def clipped_policy_loss(
    log_probs: Tensor, old_log_probs: Tensor, advantages: Tensor, *, clip_range: float, clip_range_high: float
) -> Tensor:
    """Clipped surrogate loss of each step.

    The probability ratio is clipped to [1 - clip_range, 1 + clip_range_high] where leaving it would lower the loss.

    Source: Schulman et al. (2017); Yu et al. (2025), DAPO, for a higher upper limit.
    """
    ratio = (log_probs - old_log_probs).exp()
    clipped = ratio.clamp(1.0 - clip_range, 1.0 + clip_range_high)
    return torch.maximum(-advantages * ratio, -advantages * clipped)


def value_loss(values: Tensor, returns: Tensor) -> Tensor:
    """Squared error of the critic at each step, without NeMo-RL's factor 1/2, which `vf_coef` holds as in SB3."""
    return (returns - values).square()
