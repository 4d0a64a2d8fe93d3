"""Base of worlds, protocol of their simulations, and the check of actions."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from nvtrader_pipelines.components.component import Component
from nvtrader_pipelines.market.look_ahead import cut_after
from nvtrader_pipelines.market.panel import MarketPanel, Window
from nvtrader_pipelines.worlds.book_history import BookHistory

if TYPE_CHECKING:  # takes a tenth of a second to import
    from gymnasium import spaces

Arrays = dict[str, NDArray[Any]]
Market = MarketPanel | BookHistory  # what worlds with days read


def cut_market(market: Market, t: int) -> Market:
    """Cut a market after session, or time, `t`; the arrays are views."""
    return market.until(t) if isinstance(market, BookHistory) else cut_after(market, t)


class WorldStep(NamedTuple):
    """Result of one step of n accounts, before any reset."""

    observation: NDArray[np.float32]  # (n, length)
    terms: Arrays  # (n,) each, by name; their sum is the reward
    terminated: NDArray[np.bool_]  # (n,) the world's own end
    truncated: NDArray[np.bool_]  # (n,) end of the episode's length or of the data
    info: Arrays  # (n,) each, by name, among them `equity`, `turnover` and, where there are sessions, `session`

    @property
    def reward(self) -> NDArray[np.float64]:
        """Sum of the terms, (n,)."""
        return sum(self.terms.values(), start=np.zeros(len(self.terminated)))


class World(Component):
    """Setting in which an agent acts, other than a portfolio."""

    reference: ClassVar[str]  # name of the policy that agents are compared with
    reward_unit: ClassVar[str] = "money"

    @property
    def needs_market(self) -> bool:
        """Whether prices are those of a market, with days to train and to test on."""
        return True

    @property
    def needs_days(self) -> bool:
        """Whether there are days to train and to test on."""
        return self.needs_market

    @abstractmethod
    def simulate(self, n_accounts: int, panel: Any, window: Window | None) -> "Simulation":
        """Return a simulation for training, which needs a `reset`; `panel` is the market, if the world has one.

        Raises:
            ValueError: if the market does not suit the world.
        """

    @abstractmethod
    def examine(self, panel: Any, window: Window | None) -> "Simulation":
        """Return the simulation of the tests, which needs a `reset`: as many accounts as are tested, an episode each.

        Raises:
            ValueError: if the market does not suit the world.
        """

    @abstractmethod
    def reference_actions(self, observations: NDArray[np.float32]) -> NDArray[Any]:
        """Return the actions of the reference by observations (n, length)."""


class Simulation(Protocol):
    """n accounts of one world, each in its own episode.

    Only `reset` draws, from one generator per account, so equal generators and actions give equal bytes for every n.
    An account whose episode has ended needs a `reset` before its next step.
    """

    n_accounts: int
    episode_len: int  # most steps of an episode
    steps: NDArray[np.int64]  # (n,) since the reset
    observation_space: "spaces.Space[Any]"  # a box of float32
    action_space: "spaces.Space[Any]"  # a box (A,) or `Discrete`

    @property
    def world(self) -> World:
        """World that is simulated."""
        ...

    def reset(self, rows: Sequence[int], generators: Sequence[np.random.Generator]) -> None:
        """Begin episodes of the accounts in `rows`; draws all their random numbers."""
        ...

    def observe(self) -> NDArray[np.float32]:
        """Build the observations of all accounts, (n, length)."""
        ...

    def step(self, actions: NDArray[Any]) -> WorldStep:
        """Carry out an action of every account: (n, A), or the numbers of discrete ones, (n,)."""
        ...

    def state(self) -> Arrays:
        """Copies of all arrays that the next step depends on, with a row per account."""
        ...

    def restore(self, state: Arrays) -> None:
        """Continue from a `state` of an equal simulation."""
        ...


def require_actions(actions: NDArray[Any], space: "spaces.Space[Any]", n_accounts: int) -> NDArray[Any]:
    """Return actions of n accounts: numbers of choices (n,), or rows (n, A) clipped to the box.

    Raises:
        ValueError: if the shape differs, a value is NaN, or a number is of no choice.
    """
    from gymnasium import spaces

    shape = (n_accounts, *(space.shape or ()))
    if actions.shape != shape:
        raise ValueError(f"actions need the shape {shape}, but have {actions.shape}")
    if isinstance(space, spaces.Discrete):
        if not np.isin(actions, np.arange(space.n)).all():
            raise ValueError(f"a choice must be a number from 0 to {space.n - 1}, but found {actions.tolist()}")
        return actions
    assert isinstance(space, spaces.Box)
    if np.isnan(actions).any():
        raise ValueError(f"actions must be numbers, but account {np.isnan(actions).any(axis=1).argmax()} has NaN")
    return np.clip(actions.astype(np.float64), space.low, space.high)
