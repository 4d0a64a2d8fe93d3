"""Effect of the timing stage: an entrant against its untimed twin on the same sessions."""

import numpy as np

from nvtrader_pipelines.evaluation.account_statistics import turnover_per_year
from nvtrader_pipelines.evaluation.intervals import SharpeIntervals
from nvtrader_pipelines.evaluation.statistics import max_drawdown, sharpe_ratio
from nvtrader_pipelines.scoreboard.contest_backtest import ContestRun
from nvtrader_pipelines.scoreboard.scorecard import Metric, TimingEffect

PAIR = (0, 1)  # columns with and without the timing


def timing_effect(run: ContestRun) -> TimingEffect | None:
    """Effect of the timing stage on the contest run; None where the entrant has none.

    The interval of the difference of Sharpe ratios is from a paired stationary bootstrap.
    """
    twin = run.entrant.untimed_twin
    if twin is None or run.untimed_curves is None:
        return None
    curves = (run.curves, run.untimed_curves)
    returns = np.column_stack([curve["net_return"].to_numpy() for curve in curves])
    periods_per_year = run.panel.calendar.periods_per_year
    drawn = SharpeIntervals().draw(returns, periods_per_year)
    sharpe, other = (sharpe_ratio(returns[:, i], periods_per_year) for i in PAIR)
    drawdowns = [max_drawdown(returns[:, i]) for i in PAIR]
    turnovers = [turnover_per_year(curve["turnover"].to_numpy(), periods_per_year) for curve in curves]
    low, high = drawn.difference(*PAIR)
    difference = Metric(value=sharpe - other, low=low, high=high)
    return TimingEffect(
        timing=twin.timing,
        n_decisions=len(run.actions),
        n_acted=run.n_acted,
        sharpe=sharpe,
        sharpe_without=other,
        sharpe_difference=difference,
        max_drawdown=drawdowns[0],
        max_drawdown_without=drawdowns[1],
        turnover_per_year=turnovers[0],
        turnover_per_year_without=turnovers[1],
        finding=_finding(twin.timing, run.n_acted, low, high),
    )


def _finding(timing: str, n_acted: int, low: float, high: float) -> str:
    interval = f"the 95 % interval of the difference, {low:.2f} to {high:.2f},"
    if n_acted == 0:
        return f"The {timing} timing never acted in this window, so its effect is unknown."
    if low > 0.0:
        return f"The {timing} timing helps: {interval} lies above 0."
    if high < 0.0:
        return f"The {timing} timing hurts: {interval} lies below 0."
    return f"The {timing} timing has no proven effect: {interval} contains 0."
