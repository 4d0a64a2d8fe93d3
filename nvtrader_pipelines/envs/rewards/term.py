"""Interface of reward terms: the outcome of a step, and the reward function."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from nvtrader_pipelines.envs.dynamics import HoldingPeriod, Transition

RECENT_SESSIONS = 63  # session returns stored for the realized risk of an episode


class StepOutcome(NamedTuple):
    """Outcome of one step of n portfolios."""

    t: NDArray[np.int64]  # (n,) session of the decision
    weights: NDArray[np.float64]  # (n, N+1) at the decision, cash last
    target: NDArray[np.float64]  # (n, N+1) target weights
    is_trading: NDArray[np.bool_]  # (n,) whether the portfolio traded
    period: "HoldingPeriod"
    transition: "Transition"
    recent_returns: NDArray[np.float64]  # (n, RECENT_SESSIONS) net session returns, latest last
    equity: NDArray[np.float64]  # (n,) at the last close
    peak: NDArray[np.float64]  # (n,) highest equity of the episode so far
    turnover_penalties: NDArray[np.float64] | None = None  # (n,) weights of a guard; NaN where there is none


class RewardFunction(Protocol):
    """Reward term started for n portfolios."""

    def __call__(self, outcome: StepOutcome) -> NDArray[np.float64]:
        """Compute the contributions (n,) of one step, always finite."""
        ...

    def reset(self, rows: Sequence[int]) -> None:
        """Reset the state of the portfolios `rows`, which begin an episode."""
        ...

    def state(self) -> dict[str, NDArray[Any]]:
        """Copies of the term's state, each array with a row per portfolio."""
        ...

    def restore(self, state: dict[str, NDArray[Any]]) -> None:
        """Continue from a `state`."""
        ...


@dataclass(frozen=True)
class Stateless:
    """Reward term without state between steps."""

    contributions: Callable[[StepOutcome], NDArray[np.float64]]

    def __call__(self, outcome: StepOutcome) -> NDArray[np.float64]:
        """Compute the contributions (n,) of one step."""
        return self.contributions(outcome)

    def reset(self, rows: Sequence[int]) -> None:
        """Do nothing, since there is no state."""

    def state(self) -> dict[str, NDArray[Any]]:
        """Return no arrays."""
        return {}

    def restore(self, state: dict[str, NDArray[Any]]) -> None:
        """Do nothing, since there is no state."""
