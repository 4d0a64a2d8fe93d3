"""Risk control: downside deviation, and sessions within extreme markets."""

from datetime import date

import numpy as np
from numpy.typing import NDArray

from nvtrader_pipelines.components.arrays import takes_arrays
from nvtrader_pipelines.evaluation.prudex.measures import ExtremeMarket
from nvtrader_pipelines.evaluation.statistics import UndefinedStatisticError, require_returns

MIN_SESSIONS = 2  # for a standard deviation
_HOLIDAYS = np.timedelta64(4, "D")  # longest closing of an exchange


@takes_arrays
def downside_deviation(returns: NDArray[np.float64], periods_per_year: int) -> float:
    """Annualized root mean squared loss, as a fraction; the target is 0, gains count as 0.

    Raises:
        ValueError: if there are no returns or some are not finite.

    Source: Sortino & Price (1994).
    """
    losses = np.minimum(require_returns(returns, 1), 0.0)
    return float(np.sqrt(np.mean(losses**2))) * float(np.sqrt(periods_per_year))


def sessions_within(sessions: NDArray[np.datetime64], market: ExtremeMarket) -> NDArray[np.bool_]:
    """Whether each of an account's ascending sessions (n,) lies in the extreme market.

    Raises:
        UndefinedStatisticError: if the sessions do not span the extreme market, or fewer than two lie in it.
    """
    first, last = _day(market.first), _day(market.last)
    if not len(sessions) or sessions[0] > first + _HOLIDAYS or sessions[-1] < last - _HOLIDAYS:
        span = f"{sessions[0]} to {sessions[-1]}" if len(sessions) else "nothing"
        raise UndefinedStatisticError(
            f"{market.name} is {market.first} to {market.last}, but the test windows cover {span}"
        )
    inside = (sessions >= first) & (sessions <= last)
    if inside.sum() < MIN_SESSIONS:
        raise UndefinedStatisticError(
            f"{market.name} is {market.first} to {market.last}, but the test windows have {inside.sum()} sessions of it"
        )
    return inside


def _day(day: date) -> np.datetime64:
    return np.datetime64(day, "D")
