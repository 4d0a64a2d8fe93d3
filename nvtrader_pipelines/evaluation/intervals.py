"""How far a Sharpe ratio, and the difference of two, can be trusted: the stationary bootstrap, and Lo (2002)."""

from dataclasses import dataclass

import numpy as np
import scipy  # its parts are imported when they are first used
from numpy.typing import NDArray
from pydantic import Field, PositiveInt

from nvtrader_pipelines.components.component import Component
from nvtrader_pipelines.evaluation.sharpe.error import gmm_standard_error
from nvtrader_pipelines.evaluation.statistics import (
    CONFIDENCE_LEVEL,
    require_confidence_level,
    sharpe_of_sums,
    sharpe_ratio,
)
from nvtrader_pipelines.market.calendar import SESSIONS_PER_YEAR

_CHUNK = 250  # draws counted at a time, to bound memory


@dataclass(frozen=True)
class Interval:
    """A number and the bounds of its confidence interval."""

    point: float
    low: float
    high: float


def lo_interval(
    returns: NDArray[np.float64],
    confidence_level: float = CONFIDENCE_LEVEL,
    n_lags: int | None = None,
    periods_per_year: int = SESSIONS_PER_YEAR,
) -> Interval:
    """Annual Sharpe ratio of returns (n,) and its normal interval, whose error is `gmm_standard_error`.

    The interval is of the ratio of one period, both scaled by the root of the periods of a year.

    Raises:
        ValueError: if there are fewer than two returns, some are not finite, there are not more returns than lags, or
            the level is not inside (0, 1).
        UndefinedStatisticError: if the returns never vary.

    Source: Lo (2002).
    """
    require_confidence_level(confidence_level)
    error = gmm_standard_error(returns, n_lags) * float(np.sqrt(periods_per_year))
    point, reach = (
        sharpe_ratio(returns, periods_per_year),
        float(scipy.stats.norm.ppf(0.5 + confidence_level / 2.0)) * error,
    )
    return Interval(point, point - reach, point + reach)


@dataclass(frozen=True, eq=False)
class SharpeDraws:
    """Bootstrapped annual Sharpe ratios; a row resamples the same sessions for every series."""

    values: NDArray[np.float64]  # (n_draws, n_series)
    confidence_level: float

    def interval(self, series: int) -> tuple[float, float]:
        """Percentile interval of the Sharpe ratio of one series."""
        return self._percentiles(self.values[:, series])

    def difference(self, series: int, other: int) -> tuple[float, float]:
        """Percentile interval of the Sharpe ratio of one series less that of another, paired by session."""
        return self._percentiles(self.values[:, series] - self.values[:, other])

    def _percentiles(self, draws: NDArray[np.float64]) -> tuple[float, float]:
        tail = (1.0 - self.confidence_level) / 2.0
        low, high = np.quantile(draws, (tail, 1.0 - tail))
        return float(low), float(high)


class SharpeIntervals(Component):
    """Stationary bootstrap of Sharpe ratios, paired over series.

    Source: Politis & Romano (1994), resampling by `arch`; percentile intervals.
    """

    mean_block: PositiveInt = 21  # sessions
    n_draws: PositiveInt = 2000
    confidence_level: float = Field(default=0.95, gt=0.0, lt=1.0)

    def draw(
        self,
        returns: NDArray[np.float64],
        generator: np.random.Generator,
        periods_per_year: int = SESSIONS_PER_YEAR,
    ) -> SharpeDraws:
        """Resample the sessions of `returns` (n_sessions, n_series).

        Raises:
            ValueError: if there are fewer than two sessions or some returns are not finite.
        """
        if returns.ndim != 2 or len(returns) < 2 or not np.isfinite(returns).all():
            raise ValueError(
                f"Sharpe intervals need finite returns of shape (sessions, series) over at least two sessions, "
                f"but got shape {returns.shape} with {int((~np.isfinite(returns)).sum())} not finite"
            )
        center = returns.mean(axis=0)
        sums = self._sums(returns - center, generator)
        _, ratios = sharpe_of_sums(sums, len(returns), center, np.abs(returns).max(axis=0))
        return SharpeDraws(ratios * np.sqrt(periods_per_year), self.confidence_level)

    def _sums(
        self, residuals: NDArray[np.float64], generator: np.random.Generator
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Sum of each series in each draw, and that of its squares, both (n_draws, n_series).

        A sum depends on how often each session was drawn, not on the order: one product with the counts.
        """
        n_sessions, n_series = residuals.shape
        powers = np.hstack([residuals, residuals**2])
        sums = np.empty((self.n_draws, 2 * n_series))
        from arch.bootstrap import StationaryBootstrap  # it takes a second to import

        bootstrap = StationaryBootstrap(self.mean_block, np.arange(n_sessions), seed=generator)
        for start in range(0, self.n_draws, _CHUNK):
            draws = range(start, min(start + _CHUNK, self.n_draws))
            counts = np.stack([np.bincount(bootstrap.update_indices(), minlength=n_sessions) for _ in draws]).astype(
                float
            )
            sums[draws.start : draws.stop] = counts @ powers
        return sums[:, :n_series], sums[:, n_series:]
