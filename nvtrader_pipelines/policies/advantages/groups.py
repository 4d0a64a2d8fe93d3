"""Group baseline of critic-free advantages."""

import torch
from torch import Tensor


def group_baseline(outcomes: Tensor, groups: Tensor, *, leave_one_out: bool) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation (ddof 1) of the outcomes of each episode's group, both (E,).

    With `leave_one_out`, both are of the group's other episodes. Sums run over differences from the smallest outcome,
    so the deviation of equal outcomes is exactly 0 at any offset, where NeMo-RL's E[x^2] - E[x]^2 cancels.
    As in NeMo-RL, the deviation of fewer than two outcomes is 0, and an outcome alone is its own baseline.

    Args:
        outcomes: (E,) undiscounted rewards of whole episodes.
        groups: (E,) whole numbers.
        leave_one_out: whether an outcome is left out of its own baseline.

    Source: NVIDIA NeMo-RL, calculate_baseline_and_std_per_prompt; Kool, van Hoof & Welling (2019) for leave-one-out.
    """
    together = groups[:, None] == groups[None, :]
    is_alone = together.sum(dim=1) == 1
    if leave_one_out:
        together = together & ~torch.eye(len(outcomes), dtype=torch.bool, device=outcomes.device)
    n = together.sum(dim=1).to(outcomes.dtype)
    lowest = torch.where(together, outcomes[None, :], torch.inf).amin(dim=1)
    above = torch.where(together, outcomes[None, :] - lowest[:, None], 0.0)
    mean_above = above.sum(dim=1) / n.clamp_min(1.0)
    squares = torch.where(together, (above - mean_above[:, None]).square(), 0.0).sum(dim=1)
    deviation = (squares / (n - 1.0).clamp_min(1.0)).sqrt()
    return torch.where(is_alone, outcomes, lowest + mean_above), torch.where(n > 1.0, deviation, 0.0)
