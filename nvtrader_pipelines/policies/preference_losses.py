"""Losses of policies that learn from preference pairs, per pair and unreduced."""

from collections.abc import Callable, Mapping
from typing import Literal, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

DISCOPOP_TEMPERATURE = 0.05  # as in TRL
MIN_EXO_SMOOTHING = 1e-3  # as in TRL for none: the logarithm of 0 would be infinite

LossName = Literal[
    "sigmoid",
    "hinge",
    "ipo",
    "robust",
    "exo_pair",
    "nca_pair",
    "bco_pair",
    "sppo_hard",
    "aot",
    "aot_unpaired",
    "apo_zero",
    "apo_down",
    "discopop",
    "sigmoid_norm",
]


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
    labels. `sigmoid` with it is cDPO, `robust` is rDPO, and `exo_pair` uses it too. `aot` and `aot_unpaired` take one
    number only: they compare distributions, and their losses are in sorted order. All others ignore it.

    Log-probabilities of several decisions are summed or averaged before. `ipo` and `sigmoid_norm` are meant for
    averages, on which `sigmoid_norm` is `sigmoid` without smoothing.

    Source: TRL 1.16.0, `DPOTrainer`, but that `sigmoid` is smoothed as in TRL 0.19.1. Of the others, TRL 0.19.1 differs
    in `bco_pair`, where it subtracts the running mean of rewards, and in the name `aot_pair` of `aot_unpaired`.
    """
    return _LOSSES[loss](_Pairs(log_probs, beta, label_smoothing))


def contrastive_loss(chosen: Tensor, rejected: Tensor, *, bias: float) -> Tensor:
    """Loss of contrastive preference learning (CPL) for each pair of segments (n,).

    `chosen` and `rejected` (n,) are sums of temperature times log-probability over a segment. A `bias` below 1 (lambda
    of the paper) favors actions of the data: with 1, the loss does not change where both sums shift alike.

    Source: Hejna et al. (2023), -log(e^chosen / (e^chosen + e^(bias * rejected))).
    """
    return -logsigmoid(chosen - bias * rejected)


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


class _Pairs(NamedTuple):
    """Pairs with the settings of a loss; a reward is beta times a log-ratio."""

    log_probs: LogProbs
    beta: float
    label_smoothing: float | Tensor

    @property
    def chosen(self) -> Tensor:
        return self.beta * self.log_probs.chosen_log_ratios

    @property
    def rejected(self) -> Tensor:
        return self.beta * self.log_probs.rejected_log_ratios

    @property
    def margins(self) -> Tensor:
        return self.chosen - self.rejected

    def smoothed(self, margins: Tensor) -> Tensor:
        """Cross-entropy of the smoothed labels and the Bradley-Terry probabilities of reward margins."""
        return -logsigmoid(margins) * (1.0 - self.label_smoothing) - logsigmoid(-margins) * self.label_smoothing


def _robust(pairs: _Pairs) -> Tensor:
    """Unbiased under flipped labels (Chowdhury et al. 2024, rDPO)."""
    epsilon = pairs.label_smoothing
    return (-logsigmoid(pairs.margins) * (1.0 - epsilon) + logsigmoid(-pairs.margins) * epsilon) / (1.0 - 2.0 * epsilon)


def _exo_pair(pairs: _Pairs) -> Tensor:
    """Kullback-Leibler divergence of the Bradley-Terry probabilities from the smoothed labels (Ji et al. 2024, EXO)."""
    epsilon = (torch.zeros_like(pairs.margins) + pairs.label_smoothing).clamp_min(MIN_EXO_SMOOTHING)
    log_chosen, log_rejected = logsigmoid(pairs.margins), logsigmoid(-pairs.margins)
    return log_chosen.exp() * (log_chosen - (-epsilon).log1p()) + log_rejected.exp() * (log_rejected - epsilon.log())


def _nca_pair(pairs: _Pairs) -> Tensor:
    """Noise-contrastive alignment (Chen et al. 2024)."""
    return -logsigmoid(pairs.chosen) - 0.5 * (logsigmoid(-pairs.chosen) + logsigmoid(-pairs.rejected))


def _sppo_hard(pairs: _Pairs) -> Tensor:
    """Self-play preference optimization with hard labels (Wu et al. 2024)."""
    return ((pairs.chosen - 0.5).square() + (pairs.rejected + 0.5).square()) / pairs.beta**2


def _aot(pairs: _Pairs) -> Tensor:
    """Optimal transport between the margins of the policy and of the reference (Melnyk et al. 2024)."""
    policy = (pairs.log_probs.chosen - pairs.log_probs.rejected).sort().values
    reference = (pairs.log_probs.reference_chosen - pairs.log_probs.reference_rejected).sort().values
    return pairs.smoothed(pairs.beta * (policy - reference))


def _discopop(pairs: _Pairs) -> Tensor:
    """Logistic and exponential loss, blended by the margin (Lu et al. 2024)."""
    modulation = (pairs.margins / DISCOPOP_TEMPERATURE).sigmoid()
    return -logsigmoid(pairs.margins) * (1.0 - modulation) + (-pairs.margins).exp() * modulation


_LOSSES: Mapping[LossName, Callable[[_Pairs], Tensor]] = {
    "sigmoid": lambda pairs: pairs.smoothed(pairs.margins),
    "hinge": lambda pairs: (1.0 - pairs.margins).relu(),
    "ipo": lambda pairs: ((pairs.margins - 0.5) / pairs.beta).square(),
    "robust": _robust,
    "exo_pair": _exo_pair,
    "nca_pair": _nca_pair,
    "bco_pair": lambda pairs: -logsigmoid(pairs.chosen) - logsigmoid(-pairs.rejected),
    "sppo_hard": _sppo_hard,
    "aot": _aot,
    "aot_unpaired": lambda pairs: pairs.smoothed(pairs.chosen.sort().values - pairs.rejected.sort().values),
    "apo_zero": lambda pairs: 1.0 - pairs.chosen.sigmoid() + pairs.rejected.sigmoid(),
    "apo_down": lambda pairs: pairs.chosen.sigmoid() + 1.0 - pairs.margins.sigmoid(),
    "discopop": _discopop,
    "sigmoid_norm": lambda pairs: -logsigmoid(pairs.margins),
}
