"""Universality: share of markets or windows in which an account beats the market average."""

import numpy as np
from numpy.typing import NDArray

from nvtrader_pipelines.evaluation.statistics import NO_SPREAD, UndefinedStatisticError

MIN_GROUPS = 2  # a single market or window does not generalize


def share_ahead(values: NDArray[np.float64], market: NDArray[np.float64]) -> float:
    """Share of groups (markets or windows) with an account above the market average; ties count half.

    Both arrays have a value per group (n,); higher is better.

    Raises:
        ValueError: if the lengths differ or a number is not finite.
        UndefinedStatisticError: if there are fewer than two groups.
    """
    if values.shape != market.shape or values.ndim != 1 or not np.isfinite([values, market]).all():
        raise ValueError(f"share of groups: needs two finite arrays (n,), got {values.shape} and {market.shape}")
    if len(values) < MIN_GROUPS:
        raise UndefinedStatisticError(f"too few to compare: {len(values)} of at least {MIN_GROUPS}")
    tied = np.abs(values - market) <= NO_SPREAD * np.maximum(np.abs(values), np.abs(market))
    return float(np.where(tied, 0.5, values > market).mean())
