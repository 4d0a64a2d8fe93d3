"""Confidence intervals of Sharpe ratios, their differences and growth: block bootstraps, and Lo (2002)."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import scipy  # its parts are imported when they are first used
from numpy.typing import NDArray
from pydantic import Field, PositiveInt

from nvtrader_pipelines.components.arrays import takes_arrays
from nvtrader_pipelines.components.component import Component
from nvtrader_pipelines.evaluation.sharpe.error import gmm_standard_error
from nvtrader_pipelines.evaluation.statistics import (
    CONFIDENCE_LEVEL,
    N_DRAWS,
    require_confidence_level,
    sharpe_of_sums,
    sharpe_ratio,
)

BOOTSTRAP_SEED = 0  # one for all, so that the same returns have the same interval wherever they are judged
BLOCK = 21  # sessions, as of Sharpe intervals
_CHUNK = 250  # draws counted at a time, to bound memory


@dataclass(frozen=True)
class Interval:
    """Point estimate with the bounds of its confidence interval."""

    point: float
    low: float
    high: float


@takes_arrays
def percentile_interval(draws: NDArray[np.float64], confidence_level: float) -> tuple[float, float]:
    """Bounds that leave out the same share of the draws on either side."""
    tail = (1.0 - confidence_level) / 2.0
    low, high = np.quantile(draws, (tail, 1.0 - tail))
    return float(low), float(high)


@takes_arrays
def lo_interval(
    returns: NDArray[np.float64],
    periods_per_year: int,
    confidence_level: float = CONFIDENCE_LEVEL,
    n_lags: int | None = None,
) -> Interval:
    """Annual Sharpe ratio of returns (n,) with its normal interval by `gmm_standard_error`.

    Ratio and error of one period are scaled by the square root of the periods per year.

    Raises:
        ValueError: if there are fewer than two returns, some are not finite, there are not more returns than lags, or
            the level is not inside (0, 1).
        UndefinedStatisticError: if the returns are constant.

    Source: Lo (2002).
    """
    require_confidence_level(confidence_level)
    error = gmm_standard_error(returns, n_lags) * float(np.sqrt(periods_per_year))
    point = sharpe_ratio(returns, periods_per_year)
    reach = float(scipy.stats.norm.ppf(0.5 + confidence_level / 2.0)) * error
    return Interval(point, point - reach, point + reach)


@dataclass(frozen=True, eq=False)
class SharpeDraws:
    """Bootstrapped annual Sharpe ratios; a row resamples the same sessions for every series."""

    values: NDArray[np.float64]  # (n_draws, n_series)
    confidence_level: float

    def interval(self, series: int) -> tuple[float, float]:
        """Percentile interval of the Sharpe ratio of one series."""
        return percentile_interval(self.values[:, series], self.confidence_level)

    def difference(self, series: int, other: int) -> tuple[float, float]:
        """Percentile interval of a difference of Sharpe ratios, paired by session."""
        return percentile_interval(self.values[:, series] - self.values[:, other], self.confidence_level)


class SharpeIntervals(Component):
    """Stationary bootstrap of Sharpe ratios; all series share the drawn sessions.

    The sessions drawn depend on their number alone, so an account has one interval per window wherever it is judged.
    20,000 draws leave an error of about a fiftieth of the ratio's own: .006 on a bound over ten years, .02 over one.

    Source: Politis & Romano (1994); percentile intervals.
    """

    mean_block: PositiveInt = 21  # sessions
    n_draws: PositiveInt = N_DRAWS
    confidence_level: float = Field(default=0.95, gt=0.0, lt=1.0)

    @takes_arrays
    def draw(self, returns: NDArray[np.float64], periods_per_year: int) -> SharpeDraws:
        """Draw Sharpe ratios of `returns` (n_sessions, n_series).

        Raises:
            ValueError: if there are fewer than two sessions or some returns are not finite.
        """
        if returns.ndim != 2 or len(returns) < 2 or not np.isfinite(returns).all():
            n_bad = int((~np.isfinite(returns)).sum())
            raise ValueError(f"Sharpe intervals: needs (2+ sessions, series), got {returns.shape}, {n_bad} not finite")
        series = np.ascontiguousarray(returns.T)
        center = series.mean(axis=1)
        residuals = series - center[:, None]
        # a sum depends on how often each session was drawn, not on the order; one product a series, since the last
        # digit of a product of matrices depends on how many columns there are
        powers = [*residuals, *residuals**2]
        sums = np.concatenate([np.column_stack([n @ power for power in powers]) for n in self.counts(len(returns))])
        halves = sums[:, : len(series)], sums[:, len(series) :]
        _, ratios = sharpe_of_sums(halves, len(returns), center, np.abs(returns).max(axis=0))
        return SharpeDraws(ratios * np.sqrt(periods_per_year), self.confidence_level)

    def counts(self, n_sessions: int) -> Iterator[NDArray[np.float64]]:
        """Count the occurrences of each session per draw, in batches of draws (m, n_sessions)."""
        generator = np.random.default_rng(BOOTSTRAP_SEED)
        for first in range(0, self.n_draws, _CHUNK):
            shape = min(_CHUNK, self.n_draws - first), n_sessions
            yield _count_in_blocks(generator, shape, self.mean_block).astype(float)


def _count_in_blocks(generator: np.random.Generator, shape: tuple[int, int], mean_block: int) -> NDArray[np.int16]:
    """Occurrences of each session in draws (n_draws, n_sessions) of circular blocks of geometric length."""
    n = shape[1]
    begins = generator.random(shape, dtype=np.float32) < 1.0 / mean_block  # a block
    begins[:, 0] = True
    places = np.flatnonzero(begins)
    lengths = np.diff(places, append=begins.size)
    first = places // n * 2 * n + generator.integers(n, size=len(places))  # in a row twice as long, folded below
    edges = np.zeros(2 * begins.size, np.int16)
    np.add.at(edges, first, np.int16(1))
    np.subtract.at(edges, first + lengths, np.int16(1))
    counts = edges.cumsum(dtype=np.int16).reshape(-1, 2, n)
    return counts[:, 0] + counts[:, 1]


@takes_arrays
def growth_interval(
    net_returns: NDArray[np.float64], n_sessions: int, confidence_level: float = CONFIDENCE_LEVEL
) -> tuple[float, float]:
    """Bounds of the log growth over `n_sessions` sessions, from simple returns (T,) of a back-test.

    Every draw joins blocks of 21 consecutive returns, after the last of which the first follows, so that the
    autocorrelation within a month stays. Equal returns have equal bounds.

    Source: circular block bootstrap of Politis & Romano (1992); percentile interval.
    """
    growth = np.log1p(net_returns)
    shape = N_DRAWS, -(-n_sessions // BLOCK), 1
    starts = np.random.default_rng(BOOTSTRAP_SEED).integers(len(growth), size=shape)
    drawn = (starts + np.arange(BLOCK)).reshape(N_DRAWS, -1)[:, :n_sessions] % len(growth)
    return percentile_interval(growth[drawn].sum(axis=1), confidence_level)
