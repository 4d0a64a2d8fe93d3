"""Rademacher anti-serum: lower bounds of every trial's true performance at once, by how well trials fit noise.

They are worst cases: 1,000 trials over 2,500 sessions cost an annual Sharpe ratio of 4 before the complexity, so as a
gate they would reject everything; they are to be reported.

Source: Paleologo (2024), draft of "The Elements of Quantitative Investing", procedures 4.1 and 4.2.
"""

import numpy as np
from numpy.typing import NDArray

_CHUNK = 250  # draws at a time, to bound memory


def rademacher_complexity(
    performance: NDArray[np.float64],
    generator: np.random.Generator,
    n_draws: int = 2000,
) -> float:
    """Mean over random signs of the best correlation that a trial has with them, by Monte Carlo.

    Copies of one trial have a complexity of 0, as in the text of the book; the draft prints absolute correlations.

    Args:
        performance: (T, N), of each trial at each observation: an information coefficient, or a return over its
            predicted volatility, whose mean is a Sharpe ratio per observation.
        generator: of the signs.
        n_draws: sign vectors.

    Raises:
        ValueError: if there is no trial or observation, some performance is not finite, or there are no draws.
    """
    _require_performance(performance)
    if n_draws < 1:
        raise ValueError(f"a Monte Carlo estimate needs at least one draw, but n_draws is {n_draws}")
    n_observations = len(performance)
    total = 0.0
    for start in range(0, n_draws, _CHUNK):
        shape = (min(_CHUNK, n_draws - start), n_observations)
        signs = generator.choice(np.array([-1.0, 1.0]), shape)
        total += (signs @ performance / n_observations).max(axis=1).sum()
    return float(total / n_draws)


def massart_bound(performance: NDArray[np.float64]) -> float:
    """An upper bound of the complexity, from the number of trials and their sizes.

    Raises:
        ValueError: if there is no trial or observation, or some performance is not finite.

    Source: Massart's finite lemma.
    """
    _require_performance(performance)
    n_observations, n_trials = performance.shape
    largest = float(np.linalg.norm(performance, axis=0).max())
    return largest * float(np.sqrt(2.0 * np.log(n_trials))) / n_observations


def sharpe_ratio_estimation_error(n_observations: int, n_trials: int, delta: float = 0.05) -> float:
    """What a Sharpe ratio per observation may be off by beside the complexity, with probability at most `delta`.

    Raises:
        ValueError: if a number is out of its range.
    """
    if n_observations < 1 or n_trials < 1 or not 0.0 < delta < 1.0:
        raise ValueError(
            f"a bound needs at least one observation and one trial and a delta between 0 and 1, but got "
            f"{n_observations}, {n_trials} and {delta:g}"
        )
    own = 3.0 * np.sqrt(2.0 * np.log(2.0 / delta) / n_observations)
    return float(own + np.sqrt(2.0 * np.log(2.0 * n_trials / delta) / n_observations))


def lower_bounds(estimates: NDArray[np.float64], complexity: float, error: float) -> NDArray[np.float64]:
    """Lower bounds (N,) of the true performances, which hold all at once.

    Args:
        estimates: means over the observations (N,), not annualised.
        complexity: of the trials.
        error: `sharpe_ratio_estimation_error`.
    """
    return estimates - 2.0 * complexity - error


def _require_performance(performance: NDArray[np.float64]) -> None:
    if performance.ndim != 2 or not performance.size or not np.isfinite(performance).all():
        raise ValueError(
            f"Rademacher complexity needs finite performance of shape (observations, trials), but its shape is "
            f"{performance.shape} with {int((~np.isfinite(performance)).sum())} not finite"
        )
