"""Comparison of a pipeline's guards with none, on slices of the tests that do not overlap."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from math import sqrt
from typing import Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray

from nvtrader_pipelines.components.arrays import takes_arrays
from nvtrader_pipelines.evaluation.backtest import BacktestRecord
from nvtrader_pipelines.evaluation.guard_telemetry import GuardTelemetry, guard_telemetry
from nvtrader_pipelines.evaluation.intervals import Interval
from nvtrader_pipelines.evaluation.sharpe.lead import t_quantile
from nvtrader_pipelines.evaluation.splits import Block
from nvtrader_pipelines.evaluation.statistics import max_drawdown, total_return

GuardReadiness = Literal["ready", "harmful", "open"]
GUARDED, UNGUARDED = "guarded", "unguarded"  # accounts of a slice, beside the baseline's
MIN_SLICES = 8  # our choice: the bounds of fewer lie more than 2.4 standard errors from the mean
TAIL = 0.025  # on each side of an interval


@dataclass(frozen=True)
class GuardSlice:
    """Results of the three accounts of a slice, each opened in cash at its start; drawdowns are positive."""

    fold: int  # in force; number of the block where folds share sessions
    first_session: date
    last_session: date
    guarded_return: float  # net of costs
    unguarded_return: float
    baseline_return: float
    guarded_drawdown: float  # deepest
    unguarded_drawdown: float
    baseline_drawdown: float
    telemetry: GuardTelemetry  # of the guarded account


@dataclass(frozen=True)
class GuardComparison:
    """Mean differences over all slices with 95 % intervals, and the word that follows from them."""

    readiness: GuardReadiness
    reason: str
    telemetry: GuardTelemetry  # over all slices
    return_difference: Interval  # guarded less unguarded
    drawdown_difference: Interval
    baseline_return_difference: Interval  # guarded less baseline
    baseline_drawdown_difference: Interval
    slices: tuple[GuardSlice, ...]  # in time order


def slice_blocks(blocks: Sequence[Block], n_sessions: int) -> list[Block]:
    """Cut each test block into slices, one after the other from its first session on.

    A slice has the index of its block. Sessions at the end of a block that fill no slice are left out.

    Raises:
        ValueError: if there are fewer than two slices.
    """
    slices = [
        Block(block.index, first, first + n_sessions - 1)
        for block in blocks
        for first in range(block.test_first, block.test_last - n_sessions + 2, n_sessions)
    ]
    if len(slices) < 2:
        longest = max(block.test_last - block.test_first + 1 for block in blocks)
        raise ValueError(
            f"guards are compared on two slices or more, each within the tests of one fold, but {len(slices)} of "
            f"{n_sessions} sessions fit, the longest tests having {longest}; ask for shorter slices"
        )
    return slices


def compare_slices(records: Sequence[BacktestRecord], baseline: str) -> GuardComparison:
    """Compare the accounts `GUARDED`, `UNGUARDED` and the baseline over two slices or more, a back-test each."""
    slices = tuple(_slice(record, baseline) for record in records)
    returns = np.array([(window.guarded_return, window.unguarded_return, window.baseline_return) for window in slices])
    drawdowns = np.array(
        [(window.guarded_drawdown, window.unguarded_drawdown, window.baseline_drawdown) for window in slices]
    )
    guarded = [_guarded_rows(record) for record in records]
    telemetry = guard_telemetry(
        pl.concat([info for info, _ in guarded]), np.concatenate([gross for _, gross in guarded])
    )
    return_difference = mean_interval(returns[:, 0] - returns[:, 1])
    drawdown_difference = mean_interval(drawdowns[:, 0] - drawdowns[:, 1])
    word, reason = guard_readiness(len(slices), return_difference, drawdown_difference, has_fired=telemetry.has_fired)
    return GuardComparison(
        readiness=word,
        reason=reason,
        telemetry=telemetry,
        return_difference=return_difference,
        drawdown_difference=drawdown_difference,
        baseline_return_difference=mean_interval(returns[:, 0] - returns[:, 2]),
        baseline_drawdown_difference=mean_interval(drawdowns[:, 0] - drawdowns[:, 2]),
        slices=slices,
    )


@takes_arrays
def mean_interval(differences: NDArray[np.float64]) -> Interval:
    """Mean of two or more independent differences, with its 95 % interval by Student's distribution."""
    n, mean = len(differences), float(differences.mean())
    reach = t_quantile(TAIL, n) * float(differences.std(ddof=1)) / sqrt(n)
    return Interval(mean, mean - reach, mean + reach)


def guard_readiness(
    n_slices: int, return_difference: Interval, drawdown_difference: Interval, *, has_fired: bool
) -> tuple[GuardReadiness, str]:
    """Whether guards may be trusted, in one word, and why.

    Both differences are of the slices, guarded less unguarded; a guard that changes weights has fired or not.
    """
    if n_slices < MIN_SLICES:
        return "open", f"there are {n_slices} slices, fewer than {MIN_SLICES}"
    if not has_fired:
        return "open", "no guard that changes weights fired"
    if return_difference.high < 0.0:
        return "harmful", "the guards cost return: the interval of the difference lies below 0"
    if return_difference.low > 0.0:
        return "ready", "the guards raise the return: the interval of the difference lies above 0"
    if drawdown_difference.high >= 0.0:
        return "open", "neither a higher return nor a lower drawdown is proven"
    if return_difference.point < 0.0:
        return "open", "the guards lower the drawdown, but the mean return is lower, too"
    return "ready", "the guards lower the drawdown, and the mean return is no lower"


def _slice(record: BacktestRecord, baseline: str) -> GuardSlice:
    """Results of one slice."""
    curves, figures = record.equity_curves.sort("session"), dict[str, float]()
    for account, name in ((GUARDED, GUARDED), (UNGUARDED, UNGUARDED), ("baseline", baseline)):
        returns = curves.filter(policy=name)["net_return"].to_numpy()
        figures |= {f"{account}_return": total_return(returns), f"{account}_drawdown": max_drawdown(returns)}
    return GuardSlice(
        fold=curves["fold"][0],
        first_session=curves["session"][0],
        last_session=curves["session"][-1],
        telemetry=guard_telemetry(*_guarded_rows(record)),
        **figures,
    )


def _guarded_rows(record: BacktestRecord) -> tuple[pl.Series, NDArray[np.float64]]:
    """Column `info` of the guarded account's decisions, and its gross at each close."""
    return (
        record.trajectories.filter(policy=GUARDED)["info"],
        record.equity_curves.filter(policy=GUARDED)["gross"].to_numpy(),
    )
