"""Active returns over a reference, and alpha and beta."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nvtrader_pipelines.evaluation.sharpe.error import newey_west_lags
from nvtrader_pipelines.evaluation.statistics import NO_SPREAD, varies

MIN_OBSERVATIONS = 4  # two coefficients and an error
# Smaller shares of the reference's spread are rounding: float32 weights make 1e-8 of it.
NO_ACTIVE_SPREAD = 1e-6


@dataclass(frozen=True)
class MarketModel:
    """returns = alpha + beta * reference + residual."""

    alpha_per_year: float
    beta: float
    alpha_t: float | None  # robust t statistic (HAC); None where residuals are rounding only
    n_lags: int  # of the HAC covariance


def active_returns(returns: NDArray[np.float64], reference: NDArray[np.float64]) -> NDArray[np.float64]:
    """Returns less those of a reference in the same session; both (n,) or (n, n_series).

    A difference that varies by less than a millionth of the reference is rounding; it is replaced by its mean, so that
    it is constant and has no information ratio.

    Raises:
        ValueError: if the shapes differ or some returns are not finite.
    """
    if returns.shape != reference.shape:
        raise ValueError(f"active returns: shapes differ, {returns.shape} and {reference.shape} of the reference")
    active = returns - reference
    if not np.isfinite(active).all():
        raise ValueError(f"active returns: {int((~np.isfinite(active)).sum())} are not finite")
    if len(active) < 2:
        return active
    rounding = active.std(axis=0) <= NO_ACTIVE_SPREAD * reference.std(axis=0)
    return np.where(rounding, active.mean(axis=0), active)


def market_model(returns: NDArray[np.float64], reference: NDArray[np.float64], periods_per_year: int) -> MarketModel:
    """Alpha and beta of excess returns (n,) on those of a reference, by least squares.

    The t statistic of alpha is that of Newey & West (1987), with the lags of `newey_west_lags`, and None where the fit
    leaves no residual.

    Raises:
        ValueError: if the shapes differ, there are fewer than four returns, some are not finite, or the reference
            is constant.
    """
    n = len(active_returns(returns, reference))  # checks shapes and finite numbers
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
