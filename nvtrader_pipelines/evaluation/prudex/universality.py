"""Universality: in how many markets or windows an account does better than the market's average."""

import numpy as np
from numpy.typing import NDArray

from nvtrader_pipelines.evaluation.statistics import NO_SPREAD, UndefinedStatisticError

MIN_GROUPS = 2  # one market, or one window, says nothing of others


def share_ahead(values: NDArray[np.float64], market: NDArray[np.float64]) -> float:
    """Share of groups (markets or windows) in which an account is above the market's average; ties count half.

    Args:
        values: the account's number in each group (n,), higher is better.
        market: that of the market's average (n,).

    Raises:
        ValueError: if the lengths differ or a number is not finite.
        UndefinedStatisticError: if there are fewer than two groups.
    """
    if values.shape != market.shape or values.ndim != 1 or not np.isfinite([values, market]).all():
        raise ValueError(
            f"a share of groups needs a finite number of each group on both sides, but the shapes are {values.shape} "
            f"and {market.shape}"
        )
    if len(values) < MIN_GROUPS:
        raise UndefinedStatisticError(f"{len(values)} is too few to compare: at least {MIN_GROUPS} are needed")
    tied = np.abs(values - market) <= NO_SPREAD * np.maximum(np.abs(values), np.abs(market))
    return float(np.where(tied, 0.5, values > market).mean())
