"""Moments over unmasked steps, as NVIDIA NeMo-RL defines them."""

from torch import Tensor

EPSILON = 1e-8  # as in NeMo-RL, added to counts and variances


def masked_mean(values: Tensor, mask: Tensor) -> Tensor:
    """Mean of `values` where `mask` is 1, 0 for an empty mask; a NaN propagates even if masked."""
    return (values * mask).sum() / (mask.sum() + EPSILON)


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
