"""Input and output of advantage estimators."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, eq=False)
class Episodes:
    """E whole episodes of at most T steps; those of a group share their start and differ by action only."""

    rewards: "Tensor"  # (E, T), 0 after the episode's end
    mask: "Tensor"  # (E, T) 1 while the episode runs, 0 after its end
    groups: "Tensor"  # (E,) whole numbers
    values: "Tensor"  # (E, T) the critic's estimates; zeros without a critic
    final_values: "Tensor"  # (E,) value of the last observation of a truncated episode; 0 if it terminated

    @property
    def outcomes(self) -> "Tensor":
        """Undiscounted sum of rewards of each episode, (E,)."""
        return (self.rewards * self.mask).sum(dim=1)


@dataclass(frozen=True, eq=False)
class Estimate:
    """Advantages, and the critic's targets."""

    advantages: "Tensor"  # (E, T)
    returns: "Tensor | None" = None  # (E, T) the critic's targets; None without a critic
