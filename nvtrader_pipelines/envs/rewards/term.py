"""What a reward term sees of a step, and what it returns."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from nvtrader_pipelines.envs.dynamics import HoldingPeriod, Transition

RECENT_SESSIONS = 63  # session returns kept for the realised risk of an episode


class StepOutcome(NamedTuple):
    """One step of n portfolios."""

    t: NDArray[np.int64]  # (n,) session of the decision
    weights: NDArray[np.float64]  # (n, N+1) at the decision, cash last
    target: NDArray[np.float64]  # (n, N+1) wanted
    wanted: NDArray[np.bool_]  # (n,) whether the portfolio traded at all
    period: HoldingPeriod
    transition: Transition
    recent_returns: NDArray[np.float64]  # (n, RECENT_SESSIONS) net session returns, the newest last
    equity: NDArray[np.float64]  # (n,) at the last close
    peak: NDArray[np.float64]  # (n,) highest equity of the episode so far


class RewardFunction(Protocol):
    """A reward term at work on n portfolios."""

    def __call__(self, outcome: StepOutcome) -> NDArray[np.float64]:
        """Contributions (n,) of one step, always finite."""
        ...

    def reset(self, rows: Sequence[int]) -> None:
        """Forget what the portfolios `rows` have done: they begin an episode."""
        ...

    def state(self) -> dict[str, NDArray[Any]]:
        """Copies of what is remembered, each array with a row per portfolio."""
        ...

    def restore(self, state: dict[str, NDArray[Any]]) -> None:
        """Go on from a `state`."""
        ...


@dataclass(frozen=True)
class Stateless:
    """A term that remembers nothing between steps."""

    contributions: Callable[[StepOutcome], NDArray[np.float64]]

    def __call__(self, outcome: StepOutcome) -> NDArray[np.float64]:
        """Contributions (n,) of one step."""
        return self.contributions(outcome)

    def reset(self, rows: Sequence[int]) -> None:
        """Nothing is remembered."""

    def state(self) -> dict[str, NDArray[Any]]:
        """Nothing is remembered."""
        return {}

    def restore(self, state: dict[str, NDArray[Any]]) -> None:
        """Nothing is remembered."""
