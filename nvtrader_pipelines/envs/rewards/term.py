"""What a reward term sees of a step, and what it returns."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nvtrader_pipelines.envs.dynamics import HoldingPeriod, Transition

RECENT_SESSIONS = 63  # session returns kept for the realised risk of an episode


@dataclass(frozen=True, eq=False)
class StepOutcome:
    """One step of n portfolios."""

    t: NDArray[np.int64]  # (n,) session of the decision
    weights: NDArray[np.float64]  # (n, N+1) at the decision, cash last
    period: HoldingPeriod
    transition: Transition
    recent_returns: NDArray[np.float64]  # (n, RECENT_SESSIONS) net session returns, the newest last


RewardFunction = Callable[[StepOutcome], NDArray[np.float64]]  # to (n,) contributions
