"""Inference on Sharpe ratios: probabilistic and deflated ratios, and minimum lengths.

Sharpe ratios, benchmarks and variances are per observation, never annualized. Standard errors are at the estimate, over
T - 1, as in Bailey and Lopez de Prado (2012, 2014).
"""

from dataclasses import dataclass
from math import e, isfinite

import numpy as np
import scipy  # its parts are imported when they are first used
from numpy.typing import NDArray

from nvtrader_pipelines.components.arrays import takes_arrays
from nvtrader_pipelines.evaluation.statistics import require_confidence_level, varies

MIN_OBSERVATIONS = 4  # the unbiased kurtosis needs four
ROUNDING = 1e-9  # by which moments may violate their inequality
EULER_GAMMA = float(np.euler_gamma)


@dataclass(frozen=True)
class SharpeMoments:
    """Sharpe ratio per observation, and the moments of returns that its standard error depends on.

    Raises:
        ValueError: if a number is not finite, there are fewer than two observations, or the kurtosis is below the
            squared skewness plus 1, which no returns have.
    """

    sharpe: float  # mean over standard deviation (ddof 1)
    n_observations: int
    skewness: float = 0.0
    kurtosis: float = 3.0  # raw: 3 for normal returns

    def __post_init__(self) -> None:
        if not all(map(isfinite, (self.sharpe, self.skewness, self.kurtosis))) or self.n_observations < 2:
            raise ValueError(f"moments must be finite and of at least two observations, got {self}")
        if self.kurtosis < self.skewness**2 + 1.0 - ROUNDING:
            raise ValueError(f"kurtosis must be at least the squared skewness plus 1, but is {self.kurtosis:g}")


@takes_arrays
def sharpe_moments(returns: NDArray[np.float64]) -> SharpeMoments:
    """Sharpe ratio (ddof 1), skewness and raw kurtosis (both biased) of excess returns (n,).

    Raises:
        ValueError: if there are fewer than four returns, some are not finite, or they are constant.
    """
    if returns.ndim != 1 or len(returns) < MIN_OBSERVATIONS:
        raise ValueError(f"Sharpe inference needs {MIN_OBSERVATIONS}+ returns on one axis, got shape {returns.shape}")
    if not np.isfinite(returns).all():
        n_bad = int((~np.isfinite(returns)).sum())
        raise ValueError(f"Sharpe inference needs finite returns, but {n_bad} of {len(returns)} are NaN or infinite")
    if not varies(returns):
        raise ValueError(f"Sharpe inference needs returns that vary, but all {len(returns)} are {returns[0]:g}")
    residuals = returns - returns.mean()
    squares = residuals**2
    variance = float(squares.mean())
    return SharpeMoments(
        float(returns.mean()) / float(returns.std(ddof=1)),
        len(returns),
        skewness=float((squares * residuals).mean()) / variance**1.5,
        kurtosis=float((squares**2).mean()) / variance**2,
    )


def sharpe_ratio_error(moments: SharpeMoments) -> float:
    """Standard error of the Sharpe ratio at the estimate, for independent returns of any distribution.

    Source: Mertens (2002), over T - 1 as in Bailey & Lopez de Prado (2012).
    """
    return float(np.sqrt(_variance_factor(moments) / (moments.n_observations - 1)))


def probabilistic_sharpe_ratio(moments: SharpeMoments, benchmark: float = 0.0) -> float:
    """Probability that the true Sharpe ratio exceeds a benchmark.

    Raises:
        ValueError: if the benchmark is not finite, or the moments have no standard error.

    Source: Bailey & Lopez de Prado (2012).
    """
    return float(scipy.special.ndtr(_errors_above(moments, benchmark)))


def sharpe_p_value(moments: SharpeMoments, benchmark: float = 0.0) -> float:
    """One-sided p value against the benchmark: 1 less the probabilistic Sharpe ratio."""
    return float(scipy.special.ndtr(-_errors_above(moments, benchmark)))


def _errors_above(moments: SharpeMoments, benchmark: float) -> float:
    _require_finite(benchmark)
    return (moments.sharpe - benchmark) / sharpe_ratio_error(moments)


def expected_maximum_sharpe(n_trials: float, variance: float) -> float:
    """Expected maximum of the Sharpe ratios of trials without skill; 0 for one trial or no variance.

    Gumbel's approximation, 2.3 % above the exact expectation at 10 trials and 0.9 % at 100.

    Args:
        n_trials: number of independent trials ever made; trials on a part of the sessions may count as a fraction.
        variance: of the trials' Sharpe ratios (ddof 1), per observation.

    Raises:
        ValueError: if there is no trial, or the variance is negative or not finite.

    Source: Bailey & Lopez de Prado (2014).
    """
    if n_trials < 1 or not isfinite(variance) or variance < 0.0:
        raise ValueError(f"needs 1+ trials and a finite variance of at least 0, got {n_trials} and {variance:g}")
    if n_trials == 1 or variance == 0.0:
        return 0.0
    quantiles = scipy.special.ndtri([1.0 - 1.0 / n_trials, 1.0 - 1.0 / (n_trials * e)])
    # between one and two trials the approximation falls below 0, the expectation of one
    return max(0.0, float(np.sqrt(variance) * ((1.0 - EULER_GAMMA) * quantiles[0] + EULER_GAMMA * quantiles[1])))


def minimum_track_record_length(
    moments: SharpeMoments, benchmark: float = 0.0, confidence_level: float = 0.95
) -> float:
    """Number of observations for this Sharpe ratio to exceed the benchmark at the confidence level.

    Raises:
        ValueError: if the Sharpe ratio is not above the benchmark, the benchmark is not finite, or the level is not
            inside (0, 1).

    Source: Bailey & Lopez de Prado (2012).
    """
    require_confidence_level(confidence_level)
    _require_finite(benchmark)
    if moments.sharpe <= benchmark:
        raise ValueError(f"no record is long enough: Sharpe ratio {moments.sharpe:g}, benchmark {benchmark:g}")
    quantile = float(scipy.special.ndtri(confidence_level) / (moments.sharpe - benchmark))
    return 1.0 + _variance_factor(moments) * quantile**2


def effective_number_of_trials(n_trials: int, mean_correlation: float) -> float:
    """Effective number of independent trials, from the mean pairwise correlation.

    Raises:
        ValueError: if there is no trial, or the correlation is not between -1 and 1.

    Source: Bailey & Lopez de Prado (2014), appendix A.3.
    """
    if n_trials < 1 or not -1.0 <= mean_correlation <= 1.0:
        raise ValueError(f"needs 1+ trials, a correlation within [-1, 1], got {n_trials} and {mean_correlation:g}")
    return mean_correlation + (1.0 - mean_correlation) * n_trials


def _variance_factor(moments: SharpeMoments) -> float:
    """Variance of the Sharpe ratio at the estimate, times the number of observations."""
    factor = 1.0 - moments.skewness * moments.sharpe + (moments.kurtosis - 1.0) / 4.0 * moments.sharpe**2
    if factor <= 0.0:
        raise ValueError(f"the variance of the Sharpe ratio is not positive for {moments}")
    return factor


def _require_finite(sharpe: float) -> None:
    if not isfinite(sharpe):
        raise ValueError(f"a benchmark Sharpe ratio must be finite, got {sharpe}")
