"""Statistics of a series of net returns per session, (n,).

All raise a ValueError if there are too few returns, some are not finite or, where they are compounded, one is below -1.
"""

from collections.abc import Callable, Mapping
from functools import partial

import numpy as np
from numpy.typing import NDArray

from nvtrader_pipelines.components.arrays import takes_arrays

# Below this share of the largest value, a spread is rounding: the returns are constant.
NO_SPREAD = 1e-12
# The same for a variance computed as a difference of sums, as a share of their mean square.
_NO_VARIANCE = 1e-11
MIN_ANNUALIZED = 63  # fewest sessions of an annualized figure that is shown: a quarter
CONFIDENCE_LEVEL = 0.95  # of value at risk and expected shortfall
N_DRAWS = 20_000  # of a bootstrap whose bounds are printed with two digits


class UndefinedStatisticError(ValueError):
    """Statistic without a value for valid returns, such as a ratio with divisor 0."""


@takes_arrays
def require_returns(returns: NDArray[np.float64], at_least: int) -> NDArray[np.float64]:
    """Return the returns, or raise a ValueError if they are too few, on two axes or not finite."""
    if returns.ndim != 1 or len(returns) < at_least:
        raise ValueError(f"needs at least {at_least} returns on one axis, got shape {returns.shape}")
    if not np.isfinite(returns).all():
        raise ValueError("needs finite returns, but some are NaN or infinite")
    return returns


def require_confidence_level(confidence_level: float) -> None:
    """Raise a ValueError unless a confidence level is inside (0, 1)."""
    if not 0.0 < confidence_level < 1.0:
        raise ValueError(f"a confidence level must be inside (0, 1), got {confidence_level}")


@takes_arrays
def varies(returns: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Whether returns (n,) or each column (n, n_series), two rows or more, differ by more than rounding."""
    return np.asarray(returns.std(axis=0, ddof=1) > NO_SPREAD * np.abs(returns).max(axis=0))


def sharpe_of_sums(
    sums: tuple[NDArray[np.float64], NDArray[np.float64]],
    n: int | NDArray[np.float64],
    center: NDArray[np.float64],
    largest: NDArray[np.float64],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Means and Sharpe ratios per period (m, n_series) of m samples; ratio 0 where a sample is constant.

    Args:
        sums: of residuals about a center, and of their squares, both (m, n_series).
        n: returns in each sample, one number or (m, 1).
        center: (n_series,), near the mean of each series.
        largest: (n_series,) absolute return of each series.
    """
    first, second = sums
    mean = center + first / n
    variance = np.maximum(second - first**2 / n, 0.0) / (n - 1)
    floor = np.maximum((NO_SPREAD * largest) ** 2, np.finfo(float).tiny)
    moving = variance > np.maximum(_NO_VARIANCE * second / (n - 1), floor)
    return mean, np.divide(mean, np.sqrt(variance), out=np.zeros_like(mean), where=moving)


def compounded_wealth(returns: NDArray[np.float64]) -> NDArray[np.float64]:
    """Wealth at each close (n,) of one unit at the start."""
    checked = require_returns(returns, 1)
    if checked.min() < -1.0:
        raise ValueError(f"compounding needs returns of at least -1, but the lowest is {checked.min():.6g}")
    return np.multiply.accumulate(1.0 + checked)


@takes_arrays
def running_peak(wealth: NDArray[np.float64]) -> NDArray[np.float64]:
    """Highest wealth up to each close (n,), from 1."""
    return np.maximum(np.maximum.accumulate(wealth), 1.0)


def total_return(returns: NDArray[np.float64]) -> float:
    """Compounded growth over the returns (n,), as a fraction."""
    return float(compounded_wealth(returns)[-1]) - 1.0


def cagr(returns: NDArray[np.float64], periods_per_year: int) -> float:
    """Compound annual growth rate, as a fraction.

    Raises:
        UndefinedStatisticError: if the annual growth overflows.
    """
    end = compounded_wealth(returns)[-1]
    with np.errstate(over="ignore"):
        growth = float(end ** (periods_per_year / len(returns)))
    if not np.isfinite(growth):
        raise UndefinedStatisticError(f"annual growth overflows: wealth grew {end:.3g} times in {len(returns)} periods")
    return growth - 1.0


def annual_volatility(returns: NDArray[np.float64], periods_per_year: int) -> float:
    """Standard deviation (ddof 1) per year, as a fraction."""
    return float(require_returns(returns, 2).std(ddof=1)) * float(np.sqrt(periods_per_year))


def sharpe_ratio(returns: NDArray[np.float64], periods_per_year: int) -> float:
    """Annualized mean over standard deviation (ddof 1) of excess returns (n,); 0 if constant.

    Source: Sharpe (1994).
    """
    checked = require_returns(returns, 2)
    if not varies(checked):
        return 0.0
    return float(checked.mean()) / float(checked.std(ddof=1)) * float(np.sqrt(periods_per_year))


def sortino_ratio(returns: NDArray[np.float64], periods_per_year: int) -> float:
    """Annualized mean over downside deviation, with target 0.

    Raises:
        UndefinedStatisticError: if no return is negative.

    Source: Sortino & Price (1994).
    """
    checked = require_returns(returns, 1)
    downside = float(np.sqrt(np.mean(np.minimum(checked, 0.0) ** 2)))
    _require_divisor("Sortino ratio", "a loss", downside)
    return float(checked.mean()) / downside * float(np.sqrt(periods_per_year))


def max_drawdown(returns: NDArray[np.float64]) -> float:
    """Largest loss from the running peak of wealth, as a positive fraction; the peak starts at 1."""
    wealth = compounded_wealth(returns)
    return float(np.max(1.0 - wealth / running_peak(wealth)))


def drawdown_duration(returns: NDArray[np.float64]) -> int:
    """Longest run of sessions below the running peak, an unfinished one included."""
    wealth = compounded_wealth(returns)
    at_peak = np.flatnonzero(wealth >= running_peak(wealth) * (1.0 - NO_SPREAD))
    return int(np.diff(at_peak, prepend=-1, append=len(wealth)).max()) - 1


def calmar_ratio(returns: NDArray[np.float64], periods_per_year: int) -> float:
    """Compound annual growth over the largest drawdown.

    Raises:
        UndefinedStatisticError: if there is no drawdown, or the annual growth overflows.

    Source: Young (1991), over all returns.
    """
    drawdown = max_drawdown(returns)
    _require_divisor("Calmar ratio", "a drawdown", drawdown)
    return cagr(returns, periods_per_year) / drawdown


def value_at_risk(returns: NDArray[np.float64], confidence_level: float = CONFIDENCE_LEVEL) -> float:
    """Loss of a session that is not exceeded at the confidence level, positive for a loss.

    An order statistic without interpolation: inf{l: F(l) >= confidence_level} of the empirical losses.
    """
    losses, i = _losses(returns, confidence_level)
    return float(losses[i])


def expected_shortfall(returns: NDArray[np.float64], confidence_level: float = CONFIDENCE_LEVEL) -> float:
    """Mean loss beyond the value at risk (CVaR), positive for a loss.

    The boundary loss counts in part. With fewer than 1 / (1 - confidence_level) returns it is the worst loss.

    Source: Rockafellar & Uryasev (2002), on the empirical distribution.
    """
    losses, i = _losses(returns, confidence_level)
    tail = (1.0 - confidence_level) * len(losses)
    return float(losses[i]) + float(np.sum(losses[i + 1 :] - losses[i])) / tail


def _losses(returns: NDArray[np.float64], confidence_level: float) -> tuple[NDArray[np.float64], int]:
    """Ascending losses, and the index of the value at risk."""
    require_confidence_level(confidence_level)
    losses = np.sort(-require_returns(returns, 1))
    # rounding must not push a whole number of losses to the next one
    return losses, max(0, int(np.ceil(confidence_level * len(losses) - 1e-9)) - 1)


def omega_ratio(returns: NDArray[np.float64]) -> float:
    """Sum of gains over sum of losses; the threshold is 0.

    Raises:
        UndefinedStatisticError: if no return is negative.

    Source: Keating & Shadwick (2002).
    """
    checked = require_returns(returns, 1)
    losses = -float(np.minimum(checked, 0.0).sum())
    _require_divisor("omega ratio", "a loss", losses)
    return float(np.maximum(checked, 0.0).sum()) / losses


def tail_ratio(returns: NDArray[np.float64]) -> float:
    """Absolute 95th percentile over absolute 5th percentile, both interpolated linearly.

    Raises:
        UndefinedStatisticError: if the 5th percentile is 0.
    """
    low, high = np.abs(np.percentile(require_returns(returns, 1), (5.0, 95.0)))
    _require_divisor("tail ratio", "a 5th percentile other than 0", float(low))
    return float(high / low)


def hit_rate(returns: NDArray[np.float64]) -> float:
    """Share of positive returns."""
    return float(np.mean(require_returns(returns, 1) > 0.0))


def _require_divisor(ratio: str, needs: str, divisor: float) -> None:
    if divisor == 0.0:
        raise UndefinedStatisticError(f"a {ratio} needs {needs}, but these returns have none")


STATISTICS: Mapping[str, Callable[..., float]] = {
    "total_return": total_return,
    "cagr": cagr,
    "volatility": annual_volatility,
    "sharpe": sharpe_ratio,
    "sortino": sortino_ratio,
    "calmar": calmar_ratio,
    "max_drawdown": max_drawdown,
    "drawdown_duration": drawdown_duration,
    "value_at_risk": value_at_risk,
    "cvar": expected_shortfall,
    "omega": omega_ratio,
    "tail_ratio": tail_ratio,
    "hit_rate": hit_rate,
}
ANNUALIZED = frozenset({"cagr", "volatility", "sharpe", "sortino", "calmar"})  # these also take the periods per year


def statistics_of(returns: NDArray[np.float64], periods_per_year: int) -> dict[str, float | None]:
    """Every statistic of the returns (n,) by name; None where undefined."""
    arguments = {name: (returns, periods_per_year) if name in ANNUALIZED else (returns,) for name in STATISTICS}
    return {name: value_or_reason(partial(STATISTICS[name], *arguments[name]))[0] for name in STATISTICS}


def value_or_reason(statistic: Callable[[], float]) -> tuple[float | None, str | None]:
    """Evaluate a statistic; where undefined, return the reason instead."""
    try:
        return statistic(), None
    except UndefinedStatisticError as error:
        return None, str(error)
