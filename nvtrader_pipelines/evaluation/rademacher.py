"""Rademacher anti-serum: lower bounds of every trial's true performance at once, by how well trials fit noise.

They are worst cases: 1,000 trials over 2,500 sessions cost an annual Sharpe ratio of 4 before the complexity, so as a
gate they would reject everything; they are to be reported.

Source: Paleologo (2024), draft of "The Elements of Quantitative Investing", procedures 4.1 and 4.2.
"""

import numpy as np
from numpy.typing import NDArray

MOST_EXACT = 14  # observations whose every sign is tried: 16,384 vectors
_CHUNK = 250  # draws at a time, to bound memory


def rademacher_complexity(
    performance: NDArray[np.float64],
    generator: np.random.Generator,
    n_draws: int = 2000,
    *,
    absolute: bool = False,
) -> float:
    """Mean over random signs of the best correlation that a trial has with them, by Monte Carlo.

    Args:
        performance: (T, N), of each trial at each observation: an information coefficient, or a return over its
            predicted volatility, whose mean is a Sharpe ratio per observation.
        generator: of the signs.
        n_draws: sign vectors.
        absolute: whether a trial that mirrors the signs fits as well, as the draft prints it; without, as in the text
            of the book, copies of one trial have a complexity of 0.

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
        total += _best_fits(signs, performance, absolute=absolute).sum()
    return float(total / n_draws)


def exact_rademacher_complexity(performance: NDArray[np.float64], *, absolute: bool = False) -> float:
    """The same over all 2^T sign vectors, for at most 14 observations.

    Raises:
        ValueError: if there are more, there is no trial or observation, or some performance is not finite.
    """
    _require_performance(performance)
    n_observations = len(performance)
    if n_observations > MOST_EXACT:
        raise ValueError(
            f"every sign vector can be tried for at most {MOST_EXACT} observations, but there are {n_observations}; "
            "estimate with rademacher_complexity"
        )
    signs = 1.0 - 2.0 * (np.arange(2**n_observations)[:, None] >> np.arange(n_observations) & 1)
    return float(_best_fits(signs, performance, absolute=absolute).mean())


def massart_bound(performance: NDArray[np.float64]) -> float:
    """An upper bound of the complexity (without `absolute`), from the number of trials and their sizes.

    Raises:
        ValueError: if there is no trial or observation, or some performance is not finite.

    Source: Massart's finite lemma.
    """
    _require_performance(performance)
    n_observations, n_trials = performance.shape
    largest = float(np.linalg.norm(performance, axis=0).max())
    return largest * float(np.sqrt(2.0 * np.log(n_trials))) / n_observations


def information_coefficient_error(n_observations: int, delta: float = 0.05, largest: float = 1.0) -> float:
    """What an information coefficient may be off by beside the complexity, with probability at most `delta`.

    Args:
        n_observations: T.
        delta: probability that any of the bounds fails.
        largest: no absolute information coefficient of an observation exceeds it; 1 is the worst case.

    Raises:
        ValueError: if a number is out of its range.
    """
    _require_delta(n_observations, 1, delta)
    if not largest > 0.0:
        raise ValueError(f"the largest information coefficient must be positive, but is {largest:g}")
    return 2.0 * largest * float(np.sqrt(np.log(2.0 / delta) / n_observations))


def sharpe_ratio_estimation_error(n_observations: int, n_trials: int, delta: float = 0.05) -> float:
    """What a Sharpe ratio per observation may be off by beside the complexity, with probability at most `delta`.

    Raises:
        ValueError: if a number is out of its range.
    """
    _require_delta(n_observations, n_trials, delta)
    own = 3.0 * np.sqrt(2.0 * np.log(2.0 / delta) / n_observations)
    return float(own + np.sqrt(2.0 * np.log(2.0 * n_trials / delta) / n_observations))


def lower_bounds(estimates: NDArray[np.float64], complexity: float, error: float) -> NDArray[np.float64]:
    """Lower bounds (N,) of the true performances, which hold all at once.

    Args:
        estimates: means over the observations (N,), not annualised.
        complexity: of the trials.
        error: `information_coefficient_error` or `sharpe_ratio_estimation_error`.
    """
    return estimates - 2.0 * complexity - error


def _best_fits(signs: NDArray[np.float64], performance: NDArray[np.float64], *, absolute: bool) -> NDArray[np.float64]:
    fits = signs @ performance / len(performance)
    return (np.abs(fits) if absolute else fits).max(axis=1)


def _require_performance(performance: NDArray[np.float64]) -> None:
    if performance.ndim != 2 or not performance.size or not np.isfinite(performance).all():
        raise ValueError(
            f"Rademacher complexity needs finite performance of shape (observations, trials), but its shape is "
            f"{performance.shape} with {int((~np.isfinite(performance)).sum())} not finite"
        )


def _require_delta(n_observations: int, n_trials: int, delta: float) -> None:
    if n_observations < 1 or n_trials < 1 or not 0.0 < delta < 1.0:
        raise ValueError(
            f"a bound needs at least one observation and one trial and a delta between 0 and 1, but got "
            f"{n_observations}, {n_trials} and {delta:g}"
        )
