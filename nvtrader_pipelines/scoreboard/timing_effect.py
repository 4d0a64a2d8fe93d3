"""Whether the timing of an entrant's pipeline helps: the entrant beside its twin without it, on the same sessions."""

import numpy as np

from nvtrader_pipelines.evaluation.account_statistics import turnover_per_year
from nvtrader_pipelines.evaluation.intervals import SharpeIntervals
from nvtrader_pipelines.evaluation.statistics import max_drawdown, sharpe_ratio
from nvtrader_pipelines.scoreboard.harness import Walked
from nvtrader_pipelines.scoreboard.scorecard import Metric, TimingEffect

PAIR = (0, 1)  # with the timing, without it


def timing_effect(walk: Walked) -> TimingEffect | None:
    """What the timing changed in an untouched window; nothing where the entrant has none.

    The interval of the difference of the Sharpe ratios is a paired stationary bootstrap's.
    """
    untimed = walk.candidate.untimed
    if untimed is None or walk.untimed is None:
        return None
    curves = (walk.curves, walk.untimed)
    returns = np.column_stack([curve["net_return"].to_numpy() for curve in curves])
    drawn = SharpeIntervals().draw(returns)
    sharpe, other = (sharpe_ratio(returns[:, i]) for i in PAIR)
    drawdowns = [max_drawdown(returns[:, i]) for i in PAIR]
    turnovers = [turnover_per_year(curve["turnover"].to_numpy()) for curve in curves]
    low, high = drawn.difference(*PAIR)
    difference = Metric(value=sharpe - other, low=low, high=high)
    return TimingEffect(
        timing=untimed.timing,
        n_decisions=len(walk.actions),
        n_acted=walk.n_acted,
        sharpe=sharpe,
        sharpe_without=other,
        sharpe_difference=difference,
        max_drawdown=drawdowns[0],
        max_drawdown_without=drawdowns[1],
        turnover_per_year=turnovers[0],
        turnover_per_year_without=turnovers[1],
        finding=_finding(untimed.timing, walk.n_acted, low, high),
    )


def _finding(timing: str, n_acted: int, low: float, high: float) -> str:
    interval = f"the 95 % interval of the difference, {low:.2f} to {high:.2f},"
    if n_acted == 0:
        return f"The {timing} timing never acted in this window, so it says nothing of whether it helps."
    if low > 0.0:
        return f"The {timing} timing helps: {interval} lies above 0."
    if high < 0.0:
        return f"The {timing} timing does harm: {interval} lies below 0."
    return f"The {timing} timing does not show that it helps: {interval} holds 0."
