"""State of one portfolio at a close, as policies see it and books store it."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from nvtrader_pipelines.components.arrays import without_labels

if TYPE_CHECKING:  # polars takes long to import
    from nvtrader_pipelines.market.panel import MarketPanel
    from nvtrader_pipelines.portfolio.pipeline.stage import Situation, Thresholds

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
# raw actions (n, A), sessions (n,), held weights (n, N+1) and equity (n,), 1 at the opening, to target weights (n, N+1)
AccountMap = Callable[[NDArray[np.floating], IntArray, FloatArray, FloatArray], FloatArray]


@dataclass(frozen=True, eq=False)
class Account:
    """State of one portfolio at the close of a session."""

    weights: FloatArray  # (N+1,) fractions of equity, cash last
    equity: float = 1.0
    peak: float = 1.0
    recent_returns: FloatArray = field(default_factory=lambda: np.zeros(0))  # (S,) net session returns, latest last
    since_loss: IntArray | None = None  # (N,) decisions since each name's last loss; None: no name has lost

    def __post_init__(self) -> None:
        """Raise if the weights have labels."""
        object.__setattr__(self, "weights", without_labels(self.weights, "an account's weights"))

    @property
    def drawdown(self) -> float:
        """Loss from the highest equity so far, as a positive fraction."""
        return 1.0 - self.equity / self.peak


def situation_of(
    account: Account, panel: "MarketPanel", t: int, thresholds: "Thresholds", rebal_freq: int
) -> "Situation":
    """Inputs of a pipeline's decision for the account at the close of session `t`."""
    from nvtrader_pipelines.portfolio.pipeline.stage import Situation

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
