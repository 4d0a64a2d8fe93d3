"""The losses of proximal policy optimisation, step by step and unreduced."""

import torch
from torch import Tensor


def clipped_policy_loss(
    log_probs: Tensor, old_log_probs: Tensor, advantages: Tensor, *, clip_range: float, clip_range_high: float
) -> Tensor:
    """The clipped surrogate of each step, to be minimised.

    The ratio of the action's probabilities is held in [1 - clip_range, 1 + clip_range_high] where leaving it would pay.

    Source: Schulman et al. (2017); Yu et al. (2025), DAPO, for a higher upper limit.
    """
    ratio = (log_probs - old_log_probs).exp()
    clipped = ratio.clamp(1.0 - clip_range, 1.0 + clip_range_high)
    return torch.maximum(-advantages * ratio, -advantages * clipped)


def value_loss(values: Tensor, returns: Tensor) -> Tensor:
    """The critic's squared error at each step, without NeMo-RL's factor of one half: `vf_coef` holds it, as in SB3."""
    return (returns - values).square()
