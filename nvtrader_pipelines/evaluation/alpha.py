"""Alpha and beta over a reference, and residual returns."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nvtrader_pipelines.components.arrays import takes_arrays
from nvtrader_pipelines.evaluation.sharpe.error import newey_west_lags
from nvtrader_pipelines.evaluation.statistics import NO_SPREAD, varies

MIN_OBSERVATIONS = 4  # two coefficients and an error
# Smaller shares of the reference's spread are rounding: float32 weights make 1e-8 of it.
NO_RESIDUAL_SPREAD = 1e-6


@dataclass(frozen=True)
class MarketModel:
    """returns = alpha + beta * reference + residual."""

    alpha_per_year: float
    beta: float
    alpha_t: float | None  # robust t statistic (HAC); None where residuals are rounding only
    n_lags: int  # of the HAC covariance


@takes_arrays
def residual_returns(returns: NDArray[np.float64], reference: NDArray[np.float64]) -> NDArray[np.float64]:
    """Returns less beta times those of a reference in the same session; both (n,) or (n, n_series).

    Beta is that of least squares over these sessions, or 1 for a constant reference. The mean is alpha and the Sharpe
    ratio the information ratio, so exposure to the reference earns nothing. Residual returns that vary by less than a
    millionth of the reference are rounding; they are replaced by their mean and have no information ratio.

    Raises:
        ValueError: if the shapes differ or some returns are not finite.

    Source: Treynor & Black (1973); Grinold & Kahn (2000).
    """
    _require_pair(returns, reference)
    if len(returns) < 2:
        return returns - reference
    centered = reference - reference.mean(axis=0)
    covariance, variance = (returns * centered).sum(axis=0), (centered**2).sum(axis=0)
    beta = np.divide(covariance, variance, out=np.ones_like(variance), where=varies(reference))
    residual = returns - beta * reference
    rounding = residual.std(axis=0) <= NO_RESIDUAL_SPREAD * reference.std(axis=0)
    return np.where(rounding, residual.mean(axis=0), residual)


@takes_arrays
def market_model(returns: NDArray[np.float64], reference: NDArray[np.float64], periods_per_year: int) -> MarketModel:
    """Alpha and beta of excess returns (n,) on those of a reference, by least squares.

    The t statistic of alpha is that of Newey & West (1987), with the lags of `newey_west_lags`, and None where the fit
    leaves no residual.

    Raises:
        ValueError: if the shapes differ, there are fewer than four returns, some are not finite, or the reference
            is constant.
    """
    _require_pair(returns, reference)
    n = len(returns)
    if returns.ndim != 1 or n < MIN_OBSERVATIONS:
        raise ValueError(f"market model: needs {MIN_OBSERVATIONS} returns on one axis, got shape {returns.shape}")
    if not varies(reference):
        raise ValueError(f"market model: all {n} returns of the reference are {reference[0]:g}, so there is no beta")
    n_lags = newey_west_lags(n)
    import statsmodels.api as sm  # it takes a second to import

    fitted = sm.OLS(returns, sm.add_constant(reference)).fit(cov_type="HAC", cov_kwds={"maxlags": n_lags})
    alpha, beta = fitted.params
    largest = max(float(np.abs(returns).max()), float(np.abs(reference).max()))
    is_exact = float(fitted.resid.std()) <= NO_SPREAD * largest
    alpha_t = None if is_exact else float(fitted.tvalues[0])
    return MarketModel(float(alpha) * periods_per_year, float(beta), alpha_t, n_lags)


def _require_pair(returns: NDArray[np.float64], reference: NDArray[np.float64]) -> None:
    if returns.shape != reference.shape:
        raise ValueError(f"returns over a reference: shapes differ, {returns.shape} and {reference.shape}")
    n_bad = int((~np.isfinite(returns - reference)).sum())
    if n_bad:
        raise ValueError(f"returns over a reference: {n_bad} of the pairs are not finite")
