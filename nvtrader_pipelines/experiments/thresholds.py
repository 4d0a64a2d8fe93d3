"""What the timing of a run's pipeline is fitted to: each fold's training windows, and nothing that it tests."""

from collections.abc import Mapping, Sequence

from nvtrader_pipelines.evaluation.backtest import PolicyAccount, backtest
from nvtrader_pipelines.evaluation.splits import Block, Fold
from nvtrader_pipelines.experiments.plan import RunPlan
from nvtrader_pipelines.experiments.policy_accounts import Archives, policy_without_timing
from nvtrader_pipelines.market.panel import Window
from nvtrader_pipelines.portfolio.pipeline import AccountPath, Thresholds


def fit_thresholds(plan: RunPlan, archives: Archives, chosen: Mapping[int, int], fold: Fold) -> Thresholds:
    """The thresholds of a fold, from what its policies were trained on.

    Where the timing goes by an account, it is that of the experiment itself, walked through the fold's training
    windows without timing: each stretch from cash, on an account of its own. What its policies see in a window after a
    test looks back into it, by as much as `RunPlan.warnings` says where an embargo does not keep the two apart.

    Raises:
        ValueError: if the training windows are too short for the timing.
        PolicyArchiveError: if an archive cannot be used.
    """
    timing, windows = plan.spec.pipeline.timing, plan.fitting_windows(fold)
    paths = _paths(plan, archives, chosen, fold, windows) if timing.needs_path else []
    return timing.fit(plan.panel, windows, paths)


def _paths(
    plan: RunPlan, archives: Archives, chosen: Mapping[int, int], fold: Fold, windows: Sequence[Window]
) -> list[AccountPath]:
    """What the experiment's own account did over each training window of two sessions or more."""
    found = []
    for first, last in windows:
        if first == last:
            continue
        own = PolicyAccount(plan.spec.name, "ensemble", (None,), (policy_without_timing(plan, archives, chosen, fold),))
        stretch = Block(fold.index, first + 1, last)  # the first decision is made at the close of `first`
        record = backtest(plan.panel, plan.spec.environment, [stretch], [own])
        found.append(
            AccountPath(
                net_returns=record.equity_curves["net_return"].to_numpy(),
                drawdown=record.equity_curves["drawdown"].to_numpy(),
                turnover=record.trajectories["turnover"].to_numpy()[1:],  # the first buys the whole portfolio
            )
        )
    return found
