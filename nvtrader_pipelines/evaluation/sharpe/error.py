"""Standard errors of Sharpe ratios: Lo (2002)."""

import numpy as np
from numpy.typing import NDArray

from nvtrader_pipelines.components.arrays import takes_arrays
from nvtrader_pipelines.evaluation.statistics import UndefinedStatisticError, require_returns, varies


def iid_standard_error(sharpe: float, n_periods: int) -> float:
    """Standard error of a Sharpe ratio per period, of T independent normal returns.

    Raises:
        ValueError: if there are no periods or the ratio is not finite.

    Source: Lo (2002), equation 9, sqrt((1 + SR^2/2) / T).
    """
    if n_periods < 1 or not np.isfinite(sharpe):
        raise ValueError(f"a standard error needs a finite ratio of 1+ periods, got {sharpe} of {n_periods}")
    return float(np.sqrt((1.0 + 0.5 * sharpe**2) / n_periods))


def newey_west_lags(n_periods: int) -> int:
    """Number of lags by length of the series: 4 (T/100)^(2/9), rounded down.

    Source: Newey & West (1994).
    """
    return int(4.0 * (n_periods / 100.0) ** (2.0 / 9.0))


@takes_arrays
def gmm_standard_error(returns: NDArray[np.float64], n_lags: int | None = None) -> float:
    """Standard error of the ratio per period of stationary returns (n,), dependent or not, of any distribution.

    Delta method on mean and variance (ddof 0), with the Bartlett weights of Newey & West (1987). Without lags it is
    Mertens' formula with a ratio of ddof 0; None takes `newey_west_lags`.

    Raises:
        ValueError: if there are fewer than two returns, some are not finite, or there are not more returns than lags.
        UndefinedStatisticError: if the returns are constant.

    Source: Lo (2002), appendix A.
    """
    varied = require_returns(returns, 2)
    if not varies(varied):
        raise UndefinedStatisticError(
            f"the error of a Sharpe ratio needs returns that vary, but all {len(varied)} are {varied[0]:.6g}"
        )
    lags = newey_west_lags(len(varied)) if n_lags is None else n_lags
    if not 0 <= lags < len(varied):
        raise ValueError(f"{lags} lags are not from 0 to less than the {len(varied)} returns")
    standard = (varied - varied.mean()) / varied.std()
    influence = standard - 0.5 * float(varied.mean() / varied.std()) * (standard**2 - 1.0)
    from statsmodels.stats.sandwich_covariance import S_hac_simple

    total = S_hac_simple(influence[:, None], nlags=lags)
    return float(np.sqrt(total.item())) / len(varied)
