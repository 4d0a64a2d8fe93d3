"""Fit of a pipeline's timing thresholds on each fold's training windows."""

from collections.abc import Sequence

from nvtrader_pipelines.evaluation.backtest import PolicyAccount, backtest
from nvtrader_pipelines.evaluation.splits import Block, Fold
from nvtrader_pipelines.experiments.plan import RunPlan
from nvtrader_pipelines.experiments.policy_accounts import Archives, SeedWeights, policy_without_timing
from nvtrader_pipelines.market.look_ahead import cut_after
from nvtrader_pipelines.market.panel import Window
from nvtrader_pipelines.portfolio.pipeline import AccountPath, Thresholds


def fit_thresholds(plan: RunPlan, archives: Archives, seed_weights: SeedWeights, fold: Fold) -> Thresholds:
    """Fit the thresholds of a fold on its training windows.

    A timing that depends on an account is fitted to the experiment's own, walked through each training window without
    timing, from cash. Inputs in a window after a test look back into the test where the embargo is too short; see
    `RunPlan.warnings`.

    Raises:
        ValueError: if the training windows are too short for the timing.
        PolicyArchiveError: if an archive is unusable.
    """
    timing, windows = plan.spec.pipeline.timing, plan.fitting_windows(fold)
    paths = _paths(plan, archives, seed_weights, fold, windows) if timing.needs_path else []
    return timing.fit(cut_after(plan.panel, windows[-1][1]), windows, paths)


def _paths(
    plan: RunPlan, archives: Archives, seed_weights: SeedWeights, fold: Fold, windows: Sequence[Window]
) -> list[AccountPath]:
    """Paths of the experiment's account over each training window of two or more sessions."""
    paths = []
    for first, last in windows:
        if first == last:
            continue
        own = PolicyAccount(
            plan.spec.name, "ensemble", (None,), (policy_without_timing(plan, archives, seed_weights, fold),)
        )
        stretch = Block(fold.index, first + 1, last)  # the first decision is made at the close of `first`
        record = backtest(plan.panel, plan.spec.environment, [stretch], [own])
        paths.append(
            AccountPath(
                net_returns=record.equity_curves["net_return"].to_numpy(),
                drawdown=record.equity_curves["drawdown"].to_numpy(),
                turnover=record.trajectories["turnover"].to_numpy()[1:],  # the first buys the whole portfolio
            )
        )
    return paths
