"""Deflation of Sharpe ratios for the number and spread of all trials, and the luck bar of a search."""

from dataclasses import dataclass
from math import sqrt
from typing import Self

import numpy as np
from numpy.typing import NDArray

from nvtrader_pipelines.evaluation.sharpe.inference import (
    SharpeMoments,
    expected_maximum_sharpe,
    probabilistic_sharpe_ratio,
)

MIN_CONFIGURATIONS = 20  # of the luck bar, which is too low with fewer
_ROUNDING = 1e-12  # difference of the Sharpe ratios of equal trials


@dataclass(frozen=True)
class Deflation:
    """Number of trials, and variance of their Sharpe ratios per session."""

    n_trials: int  # ever run
    n_counted: float  # a trial counts by the share of the deflated one's sessions that it covers
    variance: float | None  # unbiased; None if fewer than two of several trials have enough returns

    @classmethod
    def of(cls, sharpe: NDArray[np.float64], shares: NDArray[np.float64], n_trials: int, n_counted: float) -> Self:
        """Estimate the deflation of one trial.

        Args:
            sharpe: (n,) known Sharpe ratios per session.
            shares: (n,) share of the deflated trial's sessions that each of them covers; 1 for itself.
            n_trials: number of trials ever run.
            n_counted: the same with every trial counted by its share; the deflated one counts as one.
        """
        if n_counted <= 1.0:
            return cls(n_trials, 1.0, 0.0)
        if len(sharpe) < 2:
            return cls(n_trials, n_counted, None)
        if np.ptp(sharpe) <= _ROUNDING:
            return cls(n_trials, n_counted, 0.0)
        total = shares.sum()
        degrees = total - (shares**2).sum() / total if total > 0.0 else 0.0  # n - 1 where all shares are 1
        if degrees <= _ROUNDING:
            return cls(n_trials, n_counted, None)
        spread = (shares * (sharpe - (shares @ sharpe) / total) ** 2).sum()
        return cls(n_trials, n_counted, float(spread / degrees))

    @property
    def notes(self) -> list[str]:
        """Caveats for readers of deflated ratios."""
        if self.n_trials == 1:
            return ["one trial only, so its ratio is not deflated"]
        if self.n_counted <= 1.0:
            return ["no other trial has its sessions, so its ratio is not deflated"]
        if self.variance is None:
            return [f"a deflation needs two trials with enough returns, but only one of {self.n_trials} has them"]
        if self.variance == 0.0:
            return [f"the {self.n_trials} trials have equal ratios, so they are not deflated"]
        return []

    def apply(self, moments: SharpeMoments, periods_per_year: int) -> dict[str, float]:
        """Expected maximum (annual) and deflated Sharpe ratios; empty if the variance is unknown.

        Raises:
            ValueError: if the moments have no standard error.
        """
        if self.variance is None:
            return {}
        return {
            "expected_maximum_sharpe": expected_maximum_sharpe(self.n_counted, self.variance) * sqrt(periods_per_year),
            "deflated_sharpe": deflated_sharpe_ratio(moments, self.n_counted, self.variance),
        }


def deflated_sharpe_ratio(moments: SharpeMoments, n_trials: float, variance: float) -> float:
    """Probability that the true Sharpe ratio exceeds the expected maximum of trials without skill.

    Arguments and errors are those of `expected_maximum_sharpe`.

    Source: Bailey & Lopez de Prado (2014).
    """
    return probabilistic_sharpe_ratio(moments, expected_maximum_sharpe(n_trials, variance))


def luck_bar(n_configurations: int) -> float:
    """Standard errors above the base that the best of so many configurations without skill reaches."""
    return expected_maximum_sharpe(max(MIN_CONFIGURATIONS, n_configurations), 1.0)
