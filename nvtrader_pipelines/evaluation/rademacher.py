"""Rademacher anti-serum: simultaneous lower bounds of the true performance of all trials.

The bounds are worst cases: 1,000 trials over 2,500 sessions cost an annual Sharpe ratio of 4 before the complexity.
They are reported; as a gate they would reject everything.

Source: Paleologo (2024), draft of "The Elements of Quantitative Investing", procedures 4.1 and 4.2.
"""

import numpy as np
from numpy.typing import NDArray

from nvtrader_pipelines.components.arrays import takes_arrays

_CHUNK = 250  # draws at a time, to bound memory


@takes_arrays
def rademacher_complexity(
    performance: NDArray[np.float64], generator: np.random.Generator, n_draws: int = 2000
) -> float:
    """Mean over random signs of the best correlation of a trial with them, by Monte Carlo.

    Copies of one trial have a complexity of 0, as in the text of the book; the draft prints absolute correlations.

    Performance (T, N) is per observation and trial: information coefficients, or returns over their predicted
    volatility, whose mean is a Sharpe ratio per observation.

    Raises:
        ValueError: if there is no trial or observation, or some performance is not finite.
    """
    _require_performance(performance)
    n_observations = len(performance)
    total = 0.0
    for start in range(0, n_draws, _CHUNK):
        shape = (min(_CHUNK, n_draws - start), n_observations)
        signs = generator.choice(np.array([-1.0, 1.0]), shape)
        total += (signs @ performance / n_observations).max(axis=1).sum()
    return float(total / n_draws)


@takes_arrays
def massart_bound(performance: NDArray[np.float64]) -> float:
    """Upper bound of the complexity, from the number and norms of trials.

    Raises:
        ValueError: if there is no trial or observation, or some performance is not finite.

    Source: Massart's finite lemma.
    """
    _require_performance(performance)
    n_observations, n_trials = performance.shape
    largest = float(np.linalg.norm(performance, axis=0).max())
    return largest * float(np.sqrt(2.0 * np.log(n_trials))) / n_observations


def sharpe_ratio_estimation_error(n_observations: int, n_trials: int, delta: float) -> float:
    """Error per observation beyond the complexity, exceeded with probability `delta`."""
    own = 3.0 * np.sqrt(2.0 * np.log(2.0 / delta) / n_observations)
    return float(own + np.sqrt(2.0 * np.log(2.0 * n_trials / delta) / n_observations))


@takes_arrays
def lower_bounds(estimates: NDArray[np.float64], complexity: float, error: float) -> NDArray[np.float64]:
    """Simultaneous lower bounds (N,) of the true performances, from their estimated means (N,)."""
    return estimates - 2.0 * complexity - error


def _require_performance(performance: NDArray[np.float64]) -> None:
    if performance.ndim != 2 or not performance.size or not np.isfinite(performance).all():
        n_bad = int((~np.isfinite(performance)).sum())
        raise ValueError(f"performance: needs (observations, trials), got {performance.shape}, {n_bad} not finite")
