"""Losses of policies that learn from preference pairs, per pair and unreduced."""

from typing import Literal, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

LossName = Literal["sigmoid", "robust", "ipo"]


class LogProbs(NamedTuple):
    """Log-probabilities of the actions of n pairs under the policy and under its reference, (n,) each."""

    chosen: Tensor
    rejected: Tensor
    reference_chosen: Tensor
    reference_rejected: Tensor

    @property
    def chosen_log_ratios(self) -> Tensor:
        """Log-probability of each chosen action, less that under the reference (n,)."""
        return self.chosen - self.reference_chosen

    @property
    def rejected_log_ratios(self) -> Tensor:
        """Log-probability of each rejected action, less that under the reference (n,)."""
        return self.rejected - self.reference_rejected


def preference_loss(
    loss: LossName, log_probs: LogProbs, *, beta: float, label_smoothing: float | Tensor = 0.0
) -> Tensor:
    """Loss of each pair by its name in TRL (n,).

    `label_smoothing` is the probability, below 1/2, that the label of a pair is flipped; one per pair (n,) gives soft
    labels. `sigmoid` with it is cDPO and `robust` is unbiased under flipped labels (Chowdhury et al. 2024, rDPO); `ipo`
    ignores it and is meant for log-probabilities averaged over several decisions.

    Source: TRL 1.16.0, `DPOTrainer`, but that `sigmoid` is smoothed as in TRL 0.19.1.
    """
    margins = beta * log_probs.chosen_log_ratios - beta * log_probs.rejected_log_ratios
    if loss == "ipo":
        return ((margins - 0.5) / beta).square()
    agreeing, flipped = -logsigmoid(margins) * (1.0 - label_smoothing), -logsigmoid(-margins) * label_smoothing
    if loss == "robust":
        return (agreeing - flipped) / (1.0 - 2.0 * label_smoothing)
    return agreeing + flipped


def centered_log_prob(means: Tensor, actions: Tensor, sigma: float, n_shifted: int | None = None) -> Tensor:
    """Log-density of actions (n, A) without their gauge, up to a constant (n,).

    Independent normals around `means` (n, A) with one fixed deviation, where the first `n_shifted` columns (None: all)
    of actions and means are less their row mean. Logits that differ by a shift of these have equal softmax weights and,
    here, equal probability. Columns without effect are NaN in the actions and do not count.
    """
    is_known = ~actions.isnan()
    errors = torch.where(is_known, actions - means, 0.0)
    n_known = is_known[..., :n_shifted].sum(dim=-1).clamp_min(1)
    squares = errors.square().sum(dim=-1) - errors[..., :n_shifted].sum(dim=-1).square() / n_known
    return -0.5 * squares / sigma**2
