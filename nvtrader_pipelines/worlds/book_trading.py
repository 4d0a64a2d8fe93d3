"""World `tradesim_hft`: a position in one name, traded against its order book."""

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from nvtrader_pipelines.market.panel import Window
from nvtrader_pipelines.worlds.book_history import N_LEVELS, BookHistory, FloatArray
from nvtrader_pipelines.worlds.books import Books, GeneratedBooks
from nvtrader_pipelines.worlds.single_asset import episodes_within
from nvtrader_pipelines.worlds.world import Arrays, Market, World, WorldStep, require_actions

N_POSITIONS = 11  # 0, .1, … 1 of the largest
_N_SURE = 4  # levels whose sizes bound a choice
_LAGS = (1, 2, 5, 15, 30, 60, 120)  # steps of the moves and flows that are observed
_STATE = ("steps", "t", "ends", "held", "first_price", "wealth")


class BookTrading(World):
    """Long position of one of eleven sizes, changed at every step by orders that take from the book that is seen.

    A choice beyond what the first four levels of the book hold is the nearest that they hold; in the last step of an
    episode the position is sold as far as they hold it. Orders fill at once and leave the book as it is. The reward is
    the gain of cash and position, valued at the best bid, as a fraction of the largest position's value at the start.

    Source: TradeMaster's high-frequency environment, with a fee by default.
    """

    reference: ClassVar[str] = "cash"
    reward_unit: ClassVar[str] = "fraction of the largest position's value"

    kind: Literal["tradesim_hft"] = "tradesim_hft"
    books: Books = GeneratedBooks()
    max_position: Annotated[float, Field(gt=0.0, le=1e12)] = 5.0  # in the unit of the book's sizes
    fee_bps: Annotated[float, Field(ge=0.0, le=100.0)] = 0.5  # of the traded value
    episode_len: Annotated[int, Field(ge=2, le=86_400)] = 600  # steps

    @property
    def needs_market(self) -> bool:
        """Never: books are of the generator, or landed."""
        return False

    @property
    def needs_days(self) -> bool:
        """Whether the book is landed."""
        return not isinstance(self.books, GeneratedBooks)

    def simulate(self, n_accounts: int, panel: Market | None, window: Window | None) -> "BookSimulation":
        """Return a simulation of n traders, with episodes from random starts."""
        return BookSimulation(self, n_accounts, *self.book(panel, window))

    def examine(self, panel: Market | None, window: Window | None) -> "BookSimulation":
        """Return the simulation of all episodes of the test, one after the other."""
        history, stretches = self.book(panel, window, is_test=True)
        one_by_one = [
            (start, min(start + self.episode_len, last))
            for first, last in stretches
            for start in range(first, last, self.episode_len)
        ]
        return BookSimulation(self, len(one_by_one), history, one_by_one, in_order=True)

    def reference_actions(self, observations: NDArray[np.float32]) -> NDArray[np.int64]:
        """Return the choices of one who never buys."""
        return np.zeros(len(observations), np.int64)

    def book(
        self, panel: Market | None, window: Window | None, *, is_test: bool = False
    ) -> tuple[BookHistory, list[Window]]:
        """Return the history of the book, and its stretches without a gap in the window.

        Raises:
            ValueError: if a landed book is not given, or has no two times without a gap.
        """
        if isinstance(self.books, GeneratedBooks):
            history = self.books.history(is_test=is_test)
            window = 0, len(history.sessions) - 1
        else:
            if not isinstance(panel, BookHistory) or window is None:
                raise ValueError("books: a landed book needs its history and a window; give both, or choose generated")
            history = panel
        stretches = [(first, last) for first, last in history.stretches(window) if last > first]
        if not stretches:
            raise ValueError(f"book {history.source} must have two times without a gap, but has none; land more events")
        return history, stretches


class BookSimulation:
    """n traders of one book, each in its own episode within `windows`, none of which has a gap.

    Tables are by position of time: `moves` of the best bid for the largest position's tenth, `trading` gains (at most
    0) of changes by -10 … 10 tenths, -inf where the book does not hold them.
    """

    def __init__(
        self,
        world: BookTrading,
        n_accounts: int,
        history: BookHistory,
        windows: Sequence[Window],
        *,
        in_order: bool = False,
    ) -> None:
        from gymnasium import spaces

        self.world, self.n_accounts, self.history, self.windows = world, n_accounts, history, windows
        self.episode_len, self.in_order = world.episode_len, in_order
        if in_order:
            self._starts, self._ends = np.array(windows, np.int64).T
        else:
            self._starts, self._ends = episodes_within(windows, world.episode_len, len(history.sessions))
        unit = world.max_position / (N_POSITIONS - 1)
        self.moves = unit * np.append(np.diff(history.bids[:, 0]), 0.0)
        buys = -_costs(history.asks, history.ask_sizes, unit, 1.0 + 1e-4 * world.fee_bps)
        sales = _costs(history.bids, history.bid_sizes, unit, 1.0 - 1e-4 * world.fee_bps)
        at_bid = unit * history.bids[:, :1] * np.arange(N_POSITIONS)
        self.trading = np.hstack([(sales - at_bid)[:, :0:-1], buys + at_bid])
        self.trading[np.isnan(self.trading)] = -np.inf
        if not np.isfinite(self.trading[:, N_POSITIONS]).any():
            raise ValueError(
                f"max_position: four levels of the book must hold a tenth of {world.max_position:g} at some time, but "
                "never do; lower it"
            )
        self.features = _features(history)
        n_columns = self.features.shape[1]
        self.observation_space: spaces.Space[Any] = spaces.Box(
            np.append(np.full(n_columns, -np.inf, np.float32), np.zeros(N_POSITIONS + 1, np.float32)),
            np.append(np.full(n_columns, np.inf, np.float32), np.ones(N_POSITIONS + 1, np.float32)),
        )
        self.action_space: spaces.Space[Any] = spaces.Discrete(N_POSITIONS)
        self.steps = np.zeros(n_accounts, np.int64)
        self.t = np.full(n_accounts, self._starts[0])
        self.ends = np.full(n_accounts, self._ends[0])
        self.held = np.zeros(n_accounts, np.int64)  # tenths of the largest position
        self.first_price = np.full(n_accounts, history.asks[self._starts[0], 0])
        self.wealth = np.zeros(n_accounts)  # gain since the start of the episode

    def reset(self, rows: Sequence[int], generators: Sequence[np.random.Generator]) -> None:
        """Begin episodes without a position, at starts drawn by each account's generator."""
        rows = list(rows)
        places = rows if self.in_order else [generator.integers(len(self._starts)) for generator in generators]
        self.steps[rows], self.held[rows], self.wealth[rows] = 0, 0, 0.0
        self.t[rows], self.ends[rows] = self._starts[places], self._ends[places]
        self.first_price[rows] = self.history.asks[self.t[rows], 0]

    def observe(self) -> NDArray[np.float32]:
        """Book, moves and flows, then the mask of the positions in reach, and the position, (n, length).

        Prices are distances from the middle and moves of it in average spreads so far, sizes in average best sizes.
        """
        position = self.held[:, None] / (N_POSITIONS - 1.0)
        return np.hstack([self.features[self.t], self.in_reach(), position], dtype=np.float32)

    def in_reach(self) -> NDArray[np.bool_]:
        """Whether each position is in reach, (n, N_POSITIONS); in the last step of an episode only the lowest is."""
        held_by_book = self.gains_of_trading() > -np.inf
        lowest = np.arange(N_POSITIONS) == held_by_book.argmax(axis=1)[:, None]
        return np.where((self.t + 1 >= self.ends)[:, None], lowest, held_by_book)

    def gains_of_trading(self) -> FloatArray:
        """Gain of the change to each position, at most 0 and -inf out of reach, (n, N_POSITIONS)."""
        return self.trading[self.t[:, None], np.arange(N_POSITIONS) - self.held[:, None] + N_POSITIONS - 1]

    def step(self, actions: NDArray[Any]) -> WorldStep:
        """Trade every account to its choice and hold to the next time; an episode that is over stays as it is."""
        choices = require_actions(actions, self.action_space, self.n_accounts)
        running = self.t < self.ends
        in_reach = self.in_reach()
        lowest, highest = in_reach.argmax(axis=1), N_POSITIONS - 1 - in_reach[:, ::-1].argmax(axis=1)
        target = np.where(running, np.clip(choices, lowest, highest), self.held)
        value = self.world.max_position * self.first_price
        traded = self.trading[self.t, target - self.held + N_POSITIONS - 1] / value
        terms = {"price": target * self.moves[self.t] * running / value, "trading": traded * running}
        decided_at, turnover = self.t, np.abs(target - self.held) / (N_POSITIONS - 1.0)
        self.held, self.wealth = target, self.wealth + sum(terms.values())
        self.t, self.steps = self.t + running, self.steps + 1
        return WorldStep(
            observation=self.observe(),
            terms=terms,
            terminated=np.zeros(self.n_accounts, np.bool_),
            truncated=self.t >= self.ends,
            info={
                "session": self.history.sessions[decided_at],
                "equity": 1.0 + self.wealth,
                "turnover": turnover,
                "position": target * self.world.max_position / (N_POSITIONS - 1.0),
            },
        )

    def state(self) -> Arrays:
        """Copies of all arrays that the next step depends on."""
        return {name: getattr(self, name).copy() for name in _STATE}

    def restore(self, state: Arrays) -> None:
        """Continue from a `state`."""
        for name in _STATE:
            setattr(self, name, state[name].copy())


def _costs(prices: FloatArray, sizes: FloatArray, unit: float, fee_factor: float) -> FloatArray:
    """Value with fees of 0 … 10 units taken from the book, (T, N_POSITIONS); NaN where it is too thin."""
    below = np.hstack([np.zeros((len(sizes), 1)), np.cumsum(sizes, axis=1)])
    values = np.zeros((len(sizes), N_POSITIONS))
    for n_units in range(1, N_POSITIONS):
        taken = np.clip(n_units * unit - below[:, :-1], 0.0, sizes)
        values[:, n_units] = fee_factor * (taken * prices).sum(axis=1)
        values[below[:, _N_SURE] < n_units * unit * (1.0 - 1e-9), n_units] = np.nan
    return values


def _features(history: BookHistory) -> NDArray[np.float32]:
    """What is observed of the book at each time, (T, 4 N_LEVELS + 2 + 2 len(_LAGS)); none goes over a gap."""
    middle = (history.bids[:, 0] + history.asks[:, 0]) / 2.0
    n_known = np.arange(1.0, len(middle) + 1.0)
    spread = np.cumsum(history.asks[:, 0] - history.bids[:, 0]) / n_known
    size = np.cumsum(history.bid_sizes[:, 0] + history.ask_sizes[:, 0]) / (2.0 * n_known)
    distances = (np.hstack([history.bids, history.asks]) - middle[:, None]) / spread[:, None]
    sizes = np.hstack([history.bid_sizes, history.ask_sizes])
    bids, asks = sizes[:, :N_LEVELS], sizes[:, N_LEVELS:]
    imbalances = [
        (bids[:, :n].sum(axis=1) - asks[:, :n].sum(axis=1)) / (bids[:, :n].sum(axis=1) + asks[:, :n].sum(axis=1))
        for n in (1, N_LEVELS)
    ]
    t, first = np.arange(len(middle)), np.zeros(len(middle), np.int64)
    for start, _ in history.stretches((0, len(t) - 1)):
        first[start:] = start
    flow = np.cumsum(history.bought - history.sold)
    befores = [np.maximum(t - lag, first) for lag in _LAGS]
    changes = [(middle - middle[before]) / spread for before in befores]
    changes += [(flow - flow[before]) / size for before in befores]
    return np.hstack([distances, sizes / size[:, None], np.stack([*imbalances, *changes], axis=1)]).astype(np.float32)
