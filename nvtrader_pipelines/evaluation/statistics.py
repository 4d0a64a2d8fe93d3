"""What a series of net returns per session amounts to, each as one number."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

PERIODS_PER_YEAR = 252
# Below this share of the largest value, a spread is rounding: the returns are all the same.
NO_SPREAD = 1e-12


def _checked(returns: NDArray[np.float64], at_least: int) -> NDArray[np.float64]:
    if returns.ndim != 1 or len(returns) < at_least:
        raise ValueError(f"needs at least {at_least} returns on one axis, but their shape is {returns.shape}")
    if not np.isfinite(returns).all():
        raise ValueError("needs finite returns, but some are NaN or infinite; drop or repair them before")
    return returns


def sharpe_ratio(returns: NDArray[np.float64], periods_per_year: int = PERIODS_PER_YEAR) -> float:
    """Annualised mean over standard deviation (ddof 1) of excess returns (n,); 0 if they never vary.

    Raises:
        ValueError: if there are fewer than two returns or some are not finite.

    Source: Sharpe (1994).
    """
    checked = _checked(returns, 2)
    deviation = float(checked.std(ddof=1))
    if deviation <= NO_SPREAD * float(np.abs(checked).max()):
        return 0.0
    return float(checked.mean()) / deviation * float(np.sqrt(periods_per_year))


def cagr(returns: NDArray[np.float64], periods_per_year: int = PERIODS_PER_YEAR) -> float:
    """Constant yearly growth with the same end value, as a fraction; a year is `periods_per_year` returns.

    Raises:
        ValueError: if there are no returns or some are not finite.
    """
    checked = _checked(returns, 1)
    return float(np.prod(1.0 + checked) ** (periods_per_year / len(checked))) - 1.0


def annual_volatility(returns: NDArray[np.float64], periods_per_year: int = PERIODS_PER_YEAR) -> float:
    """Standard deviation (ddof 1) per year, as a fraction.

    Raises:
        ValueError: if there are fewer than two returns or some are not finite.
    """
    return float(_checked(returns, 2).std(ddof=1)) * float(np.sqrt(periods_per_year))


def max_drawdown(returns: NDArray[np.float64]) -> float:
    """Largest loss from an earlier peak of compounded wealth, as a positive fraction; the peak starts at 1.

    Raises:
        ValueError: if there are no returns or some are not finite.
    """
    wealth = np.cumprod(1.0 + _checked(returns, 1))
    peak = np.maximum(np.maximum.accumulate(wealth), 1.0)
    return float(np.max(1.0 - wealth / peak))


STATISTICS: dict[str, Callable[[NDArray[np.float64]], float]] = {
    "sharpe": sharpe_ratio,
    "cagr": cagr,
    "volatility": annual_volatility,
    "max_drawdown": max_drawdown,
}
