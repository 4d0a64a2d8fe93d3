"""Statistics of charts: halves of a series, luck of the best, ranks of two groups, and trends of learning curves."""

from dataclasses import dataclass
from math import sqrt
from statistics import fmean, variance  # exact, so that equal values have no spread
from typing import Self

import numpy as np
import scipy  # its parts are imported when they are first used
from numpy.typing import NDArray

from nvtrader_pipelines.components.arrays import takes_arrays
from nvtrader_pipelines.evaluation.sharpe.inference import expected_maximum_sharpe
from nvtrader_pipelines.evaluation.sharpe.lead import t_quantile

MIN_HALVES = 6  # values that are compared half by half
N_ERRORS = 2.0  # standard errors beyond which a difference is not noise
ROUNDING = 1e-12  # share of the largest reward that is no noise
RECORD = 3.0 * sqrt(2.0)  # standard errors of a smoothed point by which a new best must exceed the last
LEVEL = 0.025  # of each side of a slope's interval


@dataclass(frozen=True)
class ErrorBar:
    """Figure with its standard error."""

    value: float
    error: float
    n_errors: float = N_ERRORS

    @property
    def sign(self) -> int:
        """1 or -1 where the value is further from 0 than its number of errors, else 0."""
        return int(np.sign(self.value)) * (abs(self.value) > self.n_errors * self.error)


@takes_arrays
def half_difference(values: NDArray[np.float64]) -> ErrorBar | None:
    """Mean of the later half of values (n,) less that of the earlier; None below six values.

    Source: Welch (1947), standard error for halves of unequal variance.
    """
    earlier, later = values[: len(values) // 2].tolist(), values[len(values) // 2 :].tolist()
    if len(values) < MIN_HALVES:
        return None
    error = sqrt(variance(earlier) / len(earlier) + variance(later) / len(later))
    return ErrorBar(fmean(later) - fmean(earlier), error)


@takes_arrays
def luck_of_best(values: NDArray[np.float64]) -> float:
    """Best that as many normal draws with the mean and spread (ddof 1) of values (n,) have on average."""
    return fmean(values.tolist()) + expected_maximum_sharpe(len(values), variance(values.tolist()))


@takes_arrays
def rank_test(values: NDArray[np.float64], reference: NDArray[np.float64]) -> tuple[float, float]:
    """Standard errors by which values (n,) rank above a reference (m,), and the probability by chance on both sides.

    Ties count half and do not lower the error.

    Source: Mann & Whitney (1947), normal approximation.
    """
    ordered, n_pairs = np.sort(reference), len(values) * len(reference)
    wins = sum(float(np.searchsorted(ordered, values, side).sum()) / 2.0 for side in ("left", "right"))
    z = (wins - n_pairs / 2.0) / sqrt(n_pairs * (len(values) + len(reference) + 1) / 12.0)
    return z, 2.0 * float(scipy.special.ndtr(-abs(z)))


@dataclass(frozen=True, eq=False)
class RewardTrend:
    """Gain, records and slope of a learning curve, in reward per step."""

    noise: float  # standard deviation of a point
    gain: ErrorBar  # mean over the last third less that over the first
    ends: NDArray[np.float64]  # (n_seeds,) means over the last third
    window: int  # points of a smoothed point: a tenth
    smoothed: NDArray[np.float64]  # means over a window that ends at each point
    timesteps: NDArray[np.float64]  # of the smoothed points
    margin: float  # difference of smoothed points that noise hardly makes
    last_record: int  # smoothed point that last exceeded the earlier best by more than the margin
    slope: ErrorBar  # by least squares over the last third, over its whole range; its sign is that at 95 %
    slope_span: float  # timesteps of that range

    @classmethod
    def of(cls, timesteps: NDArray[np.float64], of_seeds: NDArray[np.float64]) -> Self:
        """Estimate the trend of the mean over seeds, from rewards (n_seeds, n) at increasing timesteps (n,), n > 3.

        Source: Gasser, Sroka & Jennen-Steinmetz (1986), noise from second differences, which have no trend.
        """
        rewards = of_seeds.mean(axis=0)
        third, window = max(1, len(rewards) // 3), max(1, len(rewards) // 10)
        rounding = ROUNDING * float(np.abs(rewards).max())
        noise = max(float(np.sqrt(np.mean(np.diff(rewards, 2) ** 2) / 6.0)), rounding)
        smoothed, margin = np.convolve(rewards, np.full(window, 1.0 / window), "valid"), RECORD * noise / sqrt(window)
        last_record = 0
        for position, reward in enumerate(smoothed):
            if reward > smoothed[last_record] + margin:
                last_record = position
        n = max(4, third)
        slope_span = float(timesteps[-1] - timesteps[-n])
        places = (timesteps[-n:] - timesteps[-n]) / slope_span
        line = np.polyfit(places, rewards[-n:], deg=1)
        residuals = rewards[-n:] - np.polyval(line, places)
        error = sqrt(float(residuals @ residuals) / (n - 2) / float(np.square(places - places.mean()).sum()))
        return cls(
            noise=noise,
            gain=ErrorBar(float(rewards[-third:].mean() - rewards[:third].mean()), noise * sqrt(2.0 / third)),
            ends=of_seeds[:, -third:].mean(axis=1),
            window=window,
            smoothed=smoothed,
            timesteps=timesteps[window - 1 :],
            margin=margin,
            last_record=last_record,
            slope=ErrorBar(float(line[0]), max(error, rounding), t_quantile(LEVEL, n - 1)),
            slope_span=slope_span,
        )

    @property
    def plateau(self) -> float:
        """Share of the training since the last record."""
        return 1.0 - float(self.timesteps[self.last_record] / self.timesteps[-1])
