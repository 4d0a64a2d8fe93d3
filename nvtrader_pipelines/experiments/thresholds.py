"""What the timing of a run's pipeline is fitted to: each fold's training windows, and what they look back to."""

from collections.abc import Mapping, Sequence

import numpy as np
import polars as pl

from nvtrader_pipelines.evaluation.backtest import BacktestRecord, Contestant, backtest
from nvtrader_pipelines.evaluation.splits import Block, Fold
from nvtrader_pipelines.experiments.contest import Archives, untimed
from nvtrader_pipelines.experiments.plan import RunPlan
from nvtrader_pipelines.market.panel import Window, windows_of
from nvtrader_pipelines.portfolio.pipeline import AccountPath, Thresholds


def fit_thresholds(plan: RunPlan, archives: Archives, chosen: Mapping[int, int], fold: Fold) -> Thresholds:
    """The thresholds of a fold, from what its policies were trained on.

    A training window after a test looks back into it, by as much as `RunPlan.warnings` says where an embargo does not
    keep the two apart.

    Where the timing goes by an account, it is that of the experiment itself, walked through the fold's training
    windows without timing: each stretch from cash, on an account of its own.

    Raises:
        ValueError: if the training windows are too short for the timing.
        PolicyArchiveError: if an archive cannot be used.
    """
    timing, windows = plan.spec.pipeline.timing, windows_of(plan.training_window(fold))
    path = _path(plan, archives, chosen, fold, windows) if timing.needs_path else None
    return timing.fit(plan.panel, windows, path)


def _path(
    plan: RunPlan, archives: Archives, chosen: Mapping[int, int], fold: Fold, windows: Sequence[Window]
) -> AccountPath:
    """What the experiment's own account did over the training windows, one after the other."""
    records = []
    for first, last in windows:
        own = Contestant(plan.spec.name, "ensemble", (None,), (untimed(plan, archives, chosen, fold),))
        stretch = Block(fold.index, first + 1, last)  # the first decision is made at the close of `first`
        records.append(backtest(plan.panel, plan.spec.environment, [stretch], [own]))
    curves = pl.concat([record.equity_curves for record in records])
    return AccountPath(
        net_returns=curves["net_return"].to_numpy(),
        drawdown=curves["drawdown"].to_numpy(),
        turnover=np.concatenate([_turnover(record) for record in records]),
    )


def _turnover(record: BacktestRecord) -> np.ndarray:
    """Of each decision after the first, which buys the whole portfolio."""
    return record.trajectories["turnover"].to_numpy()[1:]
