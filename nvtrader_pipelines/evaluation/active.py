"""What an account earned beyond a reference: active returns, and alpha with the beta taken out."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nvtrader_pipelines.evaluation.sharpe.error import newey_west_lags
from nvtrader_pipelines.evaluation.statistics import NO_SPREAD, varies
from nvtrader_pipelines.market.calendar import SESSIONS_PER_YEAR

MIN_OBSERVATIONS = 4  # two coefficients and an error
# Below this share of the reference's spread, that of a difference is rounding: weights kept as float32 make 1e-8 of it.
NO_ACTIVE_SPREAD = 1e-6


@dataclass(frozen=True)
class MarketModel:
    """returns = alpha + beta * reference + residual."""

    alpha_per_year: float
    beta: float
    alpha_t: float | None  # robust to heteroscedastic, autocorrelated residuals; None where there are none but rounding
    n_lags: int  # of the residuals' autocorrelation that it allows for


def active_returns(returns: NDArray[np.float64], reference: NDArray[np.float64]) -> NDArray[np.float64]:
    """Returns less those of the reference, session by session; both (n,) or (n, n_series).

    Where the difference varies by less than a millionth of what the reference does, all of it is rounding: it is its
    mean, so that it never varies and has no Sharpe ratio.

    Raises:
        ValueError: if the shapes differ or some returns are not finite.
    """
    if returns.shape != reference.shape:
        raise ValueError(
            f"active returns need a reference of the same sessions, but the shapes are {returns.shape} and "
            f"{reference.shape}"
        )
    active = returns - reference
    if not np.isfinite(active).all():
        raise ValueError(f"active returns need finite returns, but {int((~np.isfinite(active)).sum())} are not")
    if len(active) < 2:
        return active
    rounding = active.std(axis=0) <= NO_ACTIVE_SPREAD * reference.std(axis=0)
    return np.where(rounding, active.mean(axis=0), active)


def market_model(
    returns: NDArray[np.float64], reference: NDArray[np.float64], periods_per_year: int = SESSIONS_PER_YEAR
) -> MarketModel:
    """Alpha and beta of excess returns (n,) on those of a reference, by least squares.

    Returns that are nothing but alpha and beta times the reference leave no residual, and alpha no t statistic.
    Otherwise it is Newey and West's (1987), with the lags of `newey_west_lags`.

    Raises:
        ValueError: if the shapes differ, there are fewer than four returns, some are not finite, or the reference
            never varies.
    """
    n = len(active_returns(returns, reference))  # refuses what is not paired or not finite
    if returns.ndim != 1 or n < MIN_OBSERVATIONS:
        raise ValueError(
            f"alpha and beta need at least {MIN_OBSERVATIONS} returns on one axis, but their shape is {returns.shape}"
        )
    if not varies(reference):
        raise ValueError(f"a beta needs a reference that varies, but all its {n} returns are {reference[0]:g}")
    n_lags = newey_west_lags(n)
    import statsmodels.api as sm  # it takes a second to import

    fitted = sm.OLS(returns, sm.add_constant(reference)).fit(cov_type="HAC", cov_kwds={"maxlags": n_lags})
    alpha, beta = fitted.params
    largest = max(float(np.abs(returns).max()), float(np.abs(reference).max()))
    alone = float(fitted.resid.std()) <= NO_SPREAD * largest
    return MarketModel(
        float(alpha) * periods_per_year, float(beta), None if alone else float(fitted.tvalues[0]), n_lags
    )
