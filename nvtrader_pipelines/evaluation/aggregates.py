"""Interquartile mean of the scores of several folds and seeds, with its interval."""

import numpy as np
import scipy  # its parts are imported when they are first used
from numpy.typing import NDArray

from nvtrader_pipelines.components.arrays import takes_arrays
from nvtrader_pipelines.evaluation.intervals import Interval
from nvtrader_pipelines.evaluation.statistics import CONFIDENCE_LEVEL, N_DRAWS

TRIMMED = 0.25  # share of scores dropped at either end, rounded down to whole scores
MIN_SEEDS = 2  # a fold's only seed cannot be resampled


@takes_arrays
def interquartile_mean(scores: NDArray[np.float64], generator: np.random.Generator, n_draws: int = N_DRAWS) -> Interval:
    """Mean of the middle half of the scores (n_folds, n_seeds), with a stratified bootstrap interval.

    Seeds are resampled with replacement within each fold; bounds are percentiles. The interval covers other seeds on
    the same sessions, not other sessions.

    Raises:
        ValueError: if scores are not on two axes, there are no folds or fewer than two seeds, or some are not finite.

    Source: Agarwal et al. (2021), with folds as tasks and seeds as runs.
    """
    if scores.ndim != 2 or not len(scores) or scores.shape[1] < MIN_SEEDS or not np.isfinite(scores).all():
        n_bad = int((~np.isfinite(scores)).sum())
        raise ValueError(
            f"scores must be (folds, {MIN_SEEDS}+ seeds) and finite, got {scores.shape}, {n_bad} not finite"
        )
    drawn = scipy.stats.bootstrap(
        tuple(scores),
        _middle_half,
        n_resamples=n_draws,
        vectorized=True,
        confidence_level=CONFIDENCE_LEVEL,
        method="percentile",
        rng=generator,
    ).confidence_interval
    return Interval(float(_middle_half(*scores)), float(drawn.low), float(drawn.high))


def _middle_half(*folds: NDArray[np.float64], axis: int = -1) -> NDArray[np.float64]:
    return scipy.stats.trim_mean(np.concatenate(folds, axis=axis), TRIMMED, axis=axis)
