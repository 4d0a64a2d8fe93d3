"""Group baseline of critic-free advantages."""

import torch
from torch import Tensor


def group_baseline(
    outcomes: Tensor, groups: Tensor, valid: Tensor | None = None, *, leave_one_out: bool
) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation (ddof 1) of the outcomes of each episode's group, both (E,).

    With `leave_one_out`, both are of the group's other episodes. Sums run over differences from the smallest outcome,
    so the deviation of equal outcomes is exactly 0 at any offset, where NeMo-RL's E[x^2] - E[x]^2 cancels.
    As in NeMo-RL, the deviation of fewer than two outcomes is 0, a group with at most one valid outcome takes each
    outcome as its own baseline, and the leave-one-out mean of an invalid outcome divides by one too few.

    Args:
        outcomes: (E,) undiscounted rewards of whole episodes.
        groups: (E,) whole numbers.
        valid: (E,) mask of outcomes that enter the baseline; None: all.
        leave_one_out: whether an outcome is left out of its own baseline.

    Source: NVIDIA NeMo-RL, calculate_baseline_and_std_per_prompt; Kool, van Hoof & Welling (2019) for leave-one-out.
    """
    valid = torch.ones_like(outcomes, dtype=torch.bool) if valid is None else valid.bool()
    together = (groups[:, None] == groups[None, :]) & valid[None, :]
    n_valid = together.sum(dim=1)
    if leave_one_out:
        together = together & ~torch.eye(len(outcomes), dtype=torch.bool, device=outcomes.device)
    n = (n_valid - int(leave_one_out)).to(outcomes.dtype)
    lowest = torch.where(together, outcomes[None, :], torch.inf).amin(dim=1)
    lowest = torch.where(n_valid > 1, lowest, outcomes)
    above = torch.where(together, outcomes[None, :] - lowest[:, None], 0.0)
    mean_above = above.sum(dim=1) / n.clamp_min(1.0)
    baseline = lowest * (together.sum(dim=1) / n.clamp_min(1.0)) + mean_above  # the share differs from 1 if invalid
    squares = torch.where(together, (above - mean_above[:, None]).square(), 0.0).sum(dim=1)
    deviation = (squares / (n - 1.0).clamp_min(1.0)).sqrt()
    return torch.where(n_valid > 1, baseline, outcomes), torch.where(n > 1.0, deviation, 0.0)
