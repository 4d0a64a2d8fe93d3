"""Moments over the steps that were taken, as NVIDIA NeMo-RL defines them."""

from torch import Tensor

EPSILON = 1e-8  # NeMo-RL's, in counts and variances


def masked_mean(values: Tensor, mask: Tensor) -> Tensor:
    """Mean of `values` where `mask` is 1, and 0 where it is nowhere; a NaN counts even under the mask."""
    return (values * mask).sum() / (mask.sum() + EPSILON)


def masked_variance(values: Tensor, mask: Tensor, *, unbiased: bool) -> Tensor:
    """Variance of `values` where `mask` is 1; `unbiased` divides by one less than their number."""
    variance = masked_mean((values - masked_mean(values, mask)).square(), mask)
    count = mask.sum()
    return variance * count / (count - 1.0).clamp_min(1.0) if unbiased else variance


def whitened(values: Tensor, mask: Tensor) -> Tensor:
    """Values with mean 0 and unbiased variance 1 where `mask` is 1, and 0 elsewhere."""
    variance = masked_variance(values, mask, unbiased=True)
    return (values - masked_mean(values, mask)) * (variance + EPSILON).rsqrt() * mask


def normalized(values: Tensor, mask: Tensor) -> Tensor:
    """Values with mean 0 and biased variance 1 where `mask` is 1; elsewhere shifted and scaled alike."""
    variance = masked_variance(values, mask, unbiased=False)
    return (values - masked_mean(values, mask)) / variance.clamp_min(EPSILON).sqrt()
