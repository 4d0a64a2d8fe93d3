"""State of one portfolio at a close, as policies see it and books store it."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from nvtrader_pipelines.market.panel import MarketPanel
from nvtrader_pipelines.portfolio.fitted_thresholds import Thresholds
from nvtrader_pipelines.portfolio.pipeline.stage import NEVER, IntArray, Situation

FloatArray = NDArray[np.float64]
TOLERANCE = 1e-5  # of equity: outcomes within it are neither a loss nor a profit


@dataclass(frozen=True, eq=False)
class Account:
    """State of one portfolio at the close of a session."""

    weights: FloatArray  # (N+1,) fractions of equity, cash last
    equity: float = 1.0
    peak: float = 1.0
    recent_returns: FloatArray = field(default_factory=lambda: np.zeros(0))  # (S,) net session returns, latest last
    since_loss: IntArray | None = None  # (N,) decisions since each name's last loss; None: no name has lost

    @property
    def drawdown(self) -> float:
        """Loss from the highest equity so far, as a positive fraction."""
        return 1.0 - self.equity / self.peak


def situation_of(account: Account, panel: MarketPanel, t: int, thresholds: Thresholds, rebal_freq: int) -> Situation:
    """Inputs of a pipeline's decision for the account at the close of session `t`."""
    return Situation(
        panel, t, account.weights, account.drawdown, account.recent_returns, thresholds, rebal_freq, account.since_loss
    )


def holds(target: FloatArray, proposal: FloatArray, account: Account) -> bool:
    """Whether a pipeline changed a proposal (N+1,) to what the account holds, so that it does not trade."""
    return target is not proposal and np.array_equal(target, account.weights)


def opening_account(n_symbols: int) -> Account:
    """Account of equity 1 in cash."""
    weights = np.zeros(n_symbols + 1)
    weights[-1] = 1.0
    return Account(weights=weights)


def count_since_loss(since_loss: IntArray, outcomes: FloatArray) -> IntArray:
    """Decisions since the last loss after a period, from those before it (..., N) and its outcomes (3, ..., N).

    A name that earned less than its cost lost, and one that earned more has `NEVER` lost; any other name, also one
    without a return, is one decision further from its loss.

    Source: the loss shutdown of lee101/stock-prediction (gymrl), whose counters run down from the cooldown, one for
    long and one for short positions.
    """
    value, basis, cost = outcomes
    earned = value - basis
    net = earned - cost
    later = np.where(net > TOLERANCE, NEVER, np.minimum(since_loss + 1, NEVER))
    return np.where((earned != 0.0) & (net < -TOLERANCE), 0, later)
