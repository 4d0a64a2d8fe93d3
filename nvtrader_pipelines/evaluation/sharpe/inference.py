"""Inference on Sharpe ratios: probabilistic and deflated ratios, and minimum lengths.

Sharpe ratios, benchmarks and variances are per observation, never annualized. Names without a year follow Bailey and
Lopez de Prado (2012, 2014): standard error at the estimate, over T - 1. Names that end in `_2025` follow Lopez de
Prado, Lipton and Zoonek (2025), "How to Use the Sharpe Ratio": standard error at the benchmark (the null), over T, with
an AR(1) coefficient of the returns and the variance of the largest of K normals. The two give different numbers.
"""

from dataclasses import dataclass
from functools import cache
from math import e, isfinite

import numpy as np
import scipy  # its parts are imported when they are first used
from numpy.typing import NDArray

from nvtrader_pipelines.evaluation.statistics import require_confidence_level, varies

MIN_OBSERVATIONS = 4  # the unbiased kurtosis needs four
MAX_TRIALS = 10**9
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
            raise ValueError(
                f"a kurtosis is at least the squared skewness plus 1, but it is {self.kurtosis:g} beside a skewness of "
                f"{self.skewness:g}; give the raw kurtosis, 3 for normal returns, or the moments of a longer sample"
            )


def sharpe_moments(returns: NDArray[np.float64]) -> SharpeMoments:
    """Sharpe ratio (ddof 1), skewness and raw kurtosis (both biased) of excess returns (n,).

    Raises:
        ValueError: if there are fewer than four returns, some are not finite, or they are constant.
    """
    if returns.ndim != 1 or len(returns) < MIN_OBSERVATIONS:
        raise ValueError(
            f"Sharpe inference needs at least {MIN_OBSERVATIONS} returns on one axis, got shape {returns.shape}"
        )
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
    return float(np.sqrt(_variance_factor(moments, moments.sharpe) / (moments.n_observations - 1)))


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
        raise ValueError(
            f"an expected maximum needs 1+ trials and a finite variance of at least 0, got {n_trials} and {variance:g}"
        )
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
        raise ValueError(
            f"a minimum track record length needs a Sharpe ratio above the benchmark, but {moments.sharpe:g} is not "
            f"above {benchmark:g}; no record is long enough"
        )
    quantile = float(scipy.special.ndtri(confidence_level) / (moments.sharpe - benchmark))
    return 1.0 + _variance_factor(moments, moments.sharpe) * quantile**2


def effective_number_of_trials(n_trials: int, mean_correlation: float) -> float:
    """Effective number of independent trials, from the mean pairwise correlation.

    Raises:
        ValueError: if there is no trial, or the correlation is not between -1 and 1.

    Source: Bailey & Lopez de Prado (2014), appendix A.3.
    """
    if n_trials < 1 or not -1.0 <= mean_correlation <= 1.0:
        raise ValueError(
            f"an effective number needs 1+ trials and a mean correlation within [-1, 1], got {n_trials} and "
            f"{mean_correlation:g}"
        )
    return mean_correlation + (1.0 - mean_correlation) * n_trials


def sharpe_ratio_error_2025(
    moments: SharpeMoments, at: float, *, autocorrelation: float = 0.0, n_trials: float = 1
) -> float:
    """Standard error of the Sharpe ratio at a true ratio `at`, for the largest of some trials.

    Args:
        moments: for skewness, kurtosis and number of observations.
        at: true Sharpe ratio; in a test, that of the null hypothesis.
        autocorrelation: AR(1) coefficient of the returns.
        n_trials: K; the error of one ratio is multiplied by the standard deviation of the largest of K standard
            normals.

    Raises:
        ValueError: if there is no trial or more than 1e9, the coefficient is not between -1 and 1, or the true ratio is
            not finite.

    Source: Lopez de Prado, Lipton & Zoonek (2025).
    """
    if n_trials < 1 or not -1.0 < autocorrelation < 1.0:
        raise ValueError(
            f"the error needs 1+ trials and an AR(1) coefficient inside (-1, 1), got {n_trials} and {autocorrelation:g}"
        )
    single = _variance_factor(moments, at, autocorrelation) / moments.n_observations
    return float(np.sqrt(single * variance_of_maximum(n_trials)))


def probabilistic_sharpe_ratio_2025(
    moments: SharpeMoments, benchmark: float = 0.0, *, autocorrelation: float = 0.0, n_trials: float = 1
) -> float:
    """Probability of a Sharpe ratio below the observed one, if the true one is the benchmark.

    Arguments and errors are those of `sharpe_ratio_error_2025`.
    """
    error = sharpe_ratio_error_2025(moments, benchmark, autocorrelation=autocorrelation, n_trials=n_trials)
    return float(scipy.special.ndtr((moments.sharpe - benchmark) / error))


@cache
def variance_of_maximum(n_trials: float) -> float:
    """Variance of the largest of independent standard normals, by quadrature; 1 for one.

    Raises:
        ValueError: if there is no trial, or more than 1e9: the quadrature loses precision from 1e13 on.
    """
    if not 1 <= n_trials <= MAX_TRIALS:
        raise ValueError(f"the variance of a maximum needs 1 to {MAX_TRIALS} trials, got {n_trials}")
    if n_trials == 1:
        return 1.0
    first, second = (
        scipy.integrate.quad(
            lambda z, power=power: (
                z**power * n_trials * scipy.stats.norm.pdf(z) * scipy.stats.norm.cdf(z) ** (n_trials - 1)
            ),
            -12.0,
            12.0,
        )[0]
        for power in (1, 2)
    )
    return second - first**2


def _variance_factor(moments: SharpeMoments, at: float, autocorrelation: float = 0.0) -> float:
    """Variance of the Sharpe ratio at a true ratio, times the number of observations."""
    _require_finite(at)
    rho = autocorrelation
    once, twice = rho / (1.0 - rho), rho**2 / (1.0 - rho**2)
    constant, linear, quadratic = 1.0 + 2.0 * once, 1.0 + once + twice, 1.0 + 2.0 * twice
    factor = constant - linear * moments.skewness * at + quadratic * (moments.kurtosis - 1.0) / 4.0 * at**2
    if factor <= 0.0:
        raise ValueError(
            f"the variance of the Sharpe ratio is not positive for {moments} at {at:g}: two-valued returns have no "
            "standard error by this formula"
        )
    return factor


def _require_finite(sharpe: float) -> None:
    if not isfinite(sharpe):
        raise ValueError(f"a benchmark Sharpe ratio must be finite, got {sharpe}")
