"""Reliability: spread of results over seeds and windows, and ranks."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from nvtrader_pipelines.components.arrays import takes_arrays
from nvtrader_pipelines.evaluation.statistics import CONFIDENCE_LEVEL, N_DRAWS, UndefinedStatisticError

TAUS = np.linspace(0.0, 100.0, 101)
MIN_SEEDS = 2  # one seed has no spread and cannot be resampled
_BATCH = 100  # draws counted at a time, to bound memory


def performance_profile(scores: Sequence[NDArray[np.float64]], taus: NDArray[np.float64] = TAUS) -> NDArray[np.float64]:
    """Share of runs with a score above each tau (n_taus,); higher is better.

    Args:
        scores: per task (test window of a market), the scores of its seeds.
        taus: thresholds, ascending.

    Raises:
        ValueError: if there is no task, one has no seed, or a score is not finite.

    Source: Agarwal et al. (2021), run-score distributions.
    """
    runs = np.concatenate(_require_scores(scores))
    return (runs[None, :] > taus[:, None]).mean(axis=1)


def profile_band(
    scores: Sequence[NDArray[np.float64]], generator: np.random.Generator, taus: NDArray[np.float64] = TAUS
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Pointwise band of the performance profile, low and high (n_taus,), by a stratified bootstrap.

    Seeds are resampled with replacement within each task.

    Raises:
        ValueError: if there is no task or a score is not finite.
        UndefinedStatisticError: if a task has fewer than two seeds.
    """
    from scipy.stats import bootstrap  # a third of a second to import

    checked = _require_scores(scores)
    fewest = min(len(seeds) for seeds in checked)
    if fewest < MIN_SEEDS:
        raise UndefinedStatisticError(f"a band over seeds needs {MIN_SEEDS} per task, but one has {fewest}")
    above = tuple((seeds[None, :] > taus[:, None]).astype(np.float64) for seeds in checked)  # (n_taus, n_seeds)
    drawn = bootstrap(
        above,
        _share,
        n_resamples=N_DRAWS,
        batch=_BATCH,
        axis=-1,
        vectorized=True,
        confidence_level=CONFIDENCE_LEVEL,
        method="percentile",
        rng=generator,
    ).confidence_interval
    return np.asarray(drawn.low), np.asarray(drawn.high)


def _share(*tasks: NDArray[np.float64], axis: int = -1) -> NDArray[np.float64]:
    return np.concatenate(tasks, axis=axis).mean(axis=axis)


def area_under_profile(scores: Sequence[NDArray[np.float64]]) -> float:
    """Area under the performance profile, 0 to 1: mean of the scores (0 to 100) divided by 100.

    Raises:
        ValueError: if there is no task, one has no seed, or a score is not finite or not within 0 and 100.
    """
    runs = np.concatenate(_require_scores(scores))
    if runs.min() < 0.0 or runs.max() > 100.0:
        raise ValueError(f"scores must lie within 0 and 100, got {runs.min():.6g} to {runs.max():.6g}")
    return float(runs.mean()) / 100.0


@takes_arrays
def seed_deviation(values: NDArray[np.float64]) -> float:
    """Standard deviation (ddof 1) over the seeds of one task (n_seeds,).

    Raises:
        ValueError: if a number is not finite.
        UndefinedStatisticError: if there are fewer than two seeds.
    """
    (checked,) = _require_scores([values])
    if len(checked) < MIN_SEEDS:
        raise UndefinedStatisticError(f"a deviation over seeds needs {MIN_SEEDS} seeds, got {len(checked)}")
    return float(checked.std(ddof=1))


def rank_distribution(
    runs: Sequence[Sequence[NDArray[np.float64]]], generator: np.random.Generator, n_draws: int = N_DRAWS
) -> NDArray[np.float64]:
    """Share of draws in which each policy has each rank (n_policies, n_policies), averaged over tasks.

    Rank 1 is the highest value. A draw takes one seed per policy and task; ties are broken at random. Rows and columns
    sum to 1.

    Args:
        runs: per policy and task, the values of its seeds; higher is better.
        generator: of the draws.
        n_draws: per task.

    Raises:
        ValueError: if there is no policy, policies have different numbers of tasks, or a value is not finite.

    Source: Agarwal et al. (2021), rank comparisons.
    """
    n_tasks = {len(tasks) for tasks in runs}
    if len(n_tasks) != 1:
        raise ValueError(f"ranks need policies with equal numbers of tasks, got {sorted(n_tasks) or 'none'}")
    checked = [_require_scores(tasks) for tasks in runs]
    shares = np.zeros((len(runs), len(runs)))
    for task in range(n_tasks.pop()):
        levels = np.unique(np.concatenate([tasks[task] for tasks in checked]))
        drawn = np.stack([generator.choice(np.searchsorted(levels, tasks[task]), n_draws) for tasks in checked])
        # levels are integers, so noise below 1 only breaks ties
        best_first = np.argsort(generator.random(drawn.shape) - drawn, axis=0)
        for rank, policies in enumerate(best_first):
            shares[:, rank] += np.bincount(policies, minlength=len(runs))
    return shares / (n_draws * len(checked[0]))


@takes_arrays
def expected_rank(distribution: NDArray[np.float64]) -> NDArray[np.float64]:
    """Mean rank of each policy (n,), 1 to n, from its rank distribution."""
    return distribution @ np.arange(1.0, distribution.shape[1] + 1.0)


def _require_scores(scores: Sequence[NDArray[np.float64]]) -> list[NDArray[np.float64]]:
    arrays = [np.asarray(seeds, dtype=np.float64) for seeds in scores]
    if not arrays or any(seeds.ndim != 1 or not len(seeds) or not np.isfinite(seeds).all() for seeds in arrays):
        raise ValueError(f"scores need finite numbers of 1+ seeds per task, got {[seeds.shape for seeds in arrays]}")
    return arrays
