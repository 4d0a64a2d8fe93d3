"""Standard errors of Sharpe ratios, and their scaling with the length of a period: Lo (2002)."""

import numpy as np
import scipy  # its parts are imported when they are first used
from numpy.typing import NDArray

from nvtrader_pipelines.evaluation.statistics import (
    PERIODS_PER_YEAR,
    UndefinedStatisticError,
    is_constant,
    require_returns,
    sharpe_ratio,
)


def iid_standard_error(sharpe: float, n_periods: int) -> float:
    """Standard error of a Sharpe ratio of independent normal returns, sqrt((1 + SR^2/2) / T).

    Args:
        sharpe: ratio per period, not annualized.
        n_periods: T.

    Raises:
        ValueError: if there are no periods or the ratio is not finite.

    Source: Lo (2002), equation 9.
    """
    if n_periods < 1 or not np.isfinite(sharpe):
        raise ValueError(f"a standard error needs a finite ratio of 1+ periods, got {sharpe} of {n_periods}")
    return float(np.sqrt((1.0 + 0.5 * sharpe**2) / n_periods))


def mertens_standard_error(returns: NDArray[np.float64]) -> float:
    """Standard error of the ratio per period of independent returns (n,), of any distribution.

    sqrt((1 - g3 SR + (g4-1)/4 SR^2) / T) with the sample's skewness g3 and raw kurtosis g4 (biased), SR with ddof 1.

    Raises:
        ValueError: if there are fewer than two returns or some are not finite.
        UndefinedStatisticError: if the returns are constant.

    Source: Mertens (2002).
    """
    varied = _require_spread(returns)
    sharpe = sharpe_ratio(varied, 1)
    variance = (
        1.0
        - float(scipy.stats.skew(varied)) * sharpe
        + (float(scipy.stats.kurtosis(varied, fisher=False)) - 1.0) / 4.0 * sharpe**2
    )
    return float(np.sqrt(variance / len(varied)))


def newey_west_lags(n_periods: int) -> int:
    """Number of lags by length of the series: 4 (T/100)^(2/9), rounded down.

    Source: Newey & West (1994).
    """
    return int(4.0 * (n_periods / 100.0) ** (2.0 / 9.0))


def gmm_standard_error(returns: NDArray[np.float64], n_lags: int | None = None) -> float:
    """Standard error of the ratio per period of stationary returns (n,), dependent or not, of any distribution.

    Delta method on mean and variance (ddof 0), with the Bartlett weights of Newey & West (1987). Without lags it is
    Mertens' formula with a ratio of ddof 0.

    Args:
        returns: per period.
        n_lags: number of autocovariances; None takes `newey_west_lags`.

    Raises:
        ValueError: if there are fewer than two returns, some are not finite, or there are not more returns than lags.
        UndefinedStatisticError: if the returns are constant.

    Source: Lo (2002), appendix A.
    """
    varied = _require_spread(returns)
    lags = newey_west_lags(len(varied)) if n_lags is None else n_lags
    _require_lags(len(varied), lags)
    standard = (varied - varied.mean()) / varied.std()
    influence = standard - 0.5 * float(varied.mean() / varied.std()) * (standard**2 - 1.0)
    from statsmodels.stats.sandwich_covariance import S_hac_simple

    total = S_hac_simple(influence[:, None], nlags=lags)
    return float(np.sqrt(total.item())) / len(varied)


def aggregation_factor(autocorrelations: NDArray[np.float64], n_periods: int) -> float:
    """Factor from the Sharpe ratio of one period to that of q: eta(q) = q / sqrt(q + 2 sum (q-k) rho_k).

    Missing autocorrelations count as 0. Give only a few: all sample autocorrelations together sum to -1/2.

    Args:
        autocorrelations: (m,) at lags 1 to m; lags from q on are ignored.
        n_periods: q.

    Raises:
        ValueError: if there is no period or an autocorrelation is not within [-1, 1].
        UndefinedStatisticError: if they make the variance over q periods not positive.

    Source: Lo (2002), equation 20.
    """
    if n_periods < 1 or autocorrelations.ndim != 1 or not (np.abs(autocorrelations) <= 1.0).all():
        raise ValueError(
            f"aggregation needs 1+ periods and autocorrelations within [-1, 1], got {n_periods} and "
            f"{autocorrelations.tolist()[:5]}"
        )
    known = autocorrelations[: n_periods - 1]
    variance = n_periods + 2.0 * float(np.sum((n_periods - np.arange(1, len(known) + 1)) * known))
    if variance <= 0.0:
        raise UndefinedStatisticError(
            f"variance over {n_periods} periods must be positive, but with {len(known)} autocorrelations it is "
            f"{variance:.3g} times that of one; give fewer lags"
        )
    return n_periods / float(np.sqrt(variance))


def autocorrelations(returns: NDArray[np.float64], n_lags: int) -> NDArray[np.float64]:
    """Sample autocorrelations (n_lags,) from lag 1 on, with autocovariances over n.

    Raises:
        ValueError: if there are fewer than two returns, some are not finite, or there are not more returns than lags.
        UndefinedStatisticError: if the returns are constant.
    """
    varied = _require_spread(returns)
    _require_lags(len(varied), n_lags)
    from statsmodels.tsa.stattools import acf

    return np.asarray(acf(varied, nlags=n_lags, fft=False))[1:]


def aggregated_sharpe_ratio(
    returns: NDArray[np.float64], n_periods: int = PERIODS_PER_YEAR, n_lags: int | None = None
) -> float:
    """Sharpe ratio over `n_periods` of autocorrelated returns: that of one period times eta.

    Args:
        returns: (n,) per period.
        n_periods: periods per year, for an annual ratio.
        n_lags: number of autocorrelations, the rest being 0; None takes `newey_west_lags`.

    Raises:
        ValueError: if there are fewer than two returns, some are not finite, or there are not more returns than lags.
        UndefinedStatisticError: if the returns are constant, or the autocorrelations leave no variance.

    Source: Lo (2002), equation 20.
    """
    lags = newey_west_lags(len(returns)) if n_lags is None else n_lags
    return sharpe_ratio(returns, 1) * aggregation_factor(autocorrelations(returns, lags), n_periods)


def _require_spread(returns: NDArray[np.float64]) -> NDArray[np.float64]:
    checked = require_returns(returns, 2)
    if is_constant(checked):
        raise UndefinedStatisticError(
            f"the error of a Sharpe ratio needs returns that vary, but all {len(checked)} are {checked[0]:.6g}"
        )
    return checked


def _require_lags(n_returns: int, n_lags: int) -> None:
    if n_lags < 0:
        raise ValueError(f"n_lags must be at least 0, got {n_lags}")
    if n_lags >= n_returns:
        raise ValueError(f"{n_lags} lags need at least {n_lags + 1} returns, got {n_returns}")
