"""What every policy, learned or not, answers: the weights it wants, from what was known at a close."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from nvtrader_pipelines.envs.account import Account
from nvtrader_pipelines.market.panel import MarketPanel
from nvtrader_pipelines.portfolio.pipeline import PipelineResult


@dataclass(frozen=True, eq=False)
class Decision:
    """What a policy wants at one close, with what a learned policy knew and thought of it."""

    target: NDArray[np.float64] | None  # (N+1,) weights, cash last; None = do not trade
    action: NDArray[np.float32] | None = None  # the network's raw output
    observation_hash: int | None = None
    value: float | None = None  # the critic's estimate
    log_prob: float | None = None  # of the action under the policy's distribution
    pipeline: PipelineResult | None = None  # the stages that made the target of a proposal


class Policy(Protocol):
    """Maps history and the account to target weights; reads rows up to and including `t` of the panel only."""

    def decide(self, panel: MarketPanel, t: int, account: Account) -> Decision:
        """The weights wanted at the close of session `t`."""
        ...
