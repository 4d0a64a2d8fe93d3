"""What an advantage is estimated from, and what it gives."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, eq=False)
class Episodes:
    """E whole episodes of at most T steps; those of one group began at the same session and differ by action only."""

    rewards: "Tensor"  # (E, T), 0 after the episode's end
    mask: "Tensor"  # (E, T) 1 while the episode runs, 0 after its end
    groups: "Tensor"  # (E,) whole numbers
    values: "Tensor"  # (E, T) the critic's estimates; zeros without a critic
    final_values: "Tensor"  # (E,) its estimate of what a truncated episode would still earn; 0 where it terminated

    @property
    def outcomes(self) -> "Tensor":
        """The reward of each whole episode, undiscounted (E,)."""
        return (self.rewards * self.mask).sum(dim=1)


@dataclass(frozen=True, eq=False)
class Estimate:
    """How much better each action was than expected, and what the critic should have expected."""

    advantages: "Tensor"  # (E, T)
    returns: "Tensor | None" = None  # (E, T) the critic's targets; None without a critic
