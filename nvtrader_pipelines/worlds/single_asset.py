"""Worlds `tradesim_algotrading` and `finagent_trading`: one name of a market."""

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from nvtrader_pipelines.envs.rewards import LogGrowth
from nvtrader_pipelines.envs.spec import EnvSpec
from nvtrader_pipelines.market.panel import MarketPanel, Window, normalize_windows, window_mask
from nvtrader_pipelines.portfolio.financing import STANDARD_FINANCING, FinancingModel
from nvtrader_pipelines.worlds.single_name import panel_of_symbol
from nvtrader_pipelines.worlds.world import Arrays, World, WorldStep, require_actions

SHORT, FLAT, LONG = range(3)  # choices; the position is the choice less 1
SELL, HOLD, BUY = range(3)  # choices of `FinAgentTrading`
_BARS = ("close_returns", "overnight_returns", "high_returns", "low_returns")
_EPISODES = ("steps", "ends")


class SingleAsset(World):
    """One name, in which equity is long (1), short (-1) or not at all (0), by a choice at every close.

    Orders fill at the next open, or the next close in markets without opens, so no bar is seen before its fill. A
    short position is brought back to -1 of equity at every decision and pays the financing's fees. The reward is log
    growth net of costs. A choice of a name that is not eligible at the close is no position.
    """

    reference: ClassVar[str] = "buy_and_hold"
    reward_unit: ClassVar[str] = "log growth"

    kind: Literal["tradesim_algotrading"] = "tradesim_algotrading"
    symbol: str | None = None  # None: the first of the market
    lookback: Annotated[int, Field(ge=1, le=250)] = 20  # bars observed
    episode_len: Annotated[int, Field(ge=1, le=2520)] = 60  # sessions
    turnover_cost_bps: Annotated[float, Field(ge=0.0, le=500.0)] = 10.0  # of the traded value
    fill: Literal["next_open", "next_close"] = "next_open"
    financing: FinancingModel = STANDARD_FINANCING

    def simulate(self, n_accounts: int, panel: MarketPanel | None, window: Window | None) -> "SingleAssetSimulation":
        """Return a simulation of n accounts, with episodes within the window."""
        assert panel is not None
        return SingleAssetSimulation(panel, self, n_accounts, window)

    def examine(self, panel: MarketPanel | None, window: Window | None) -> "SingleAssetSimulation":
        """Return the simulation of one account that trades the whole window."""
        assert window is not None
        one_episode = self.model_copy(update={"episode_len": window[1] - window[0]})
        return one_episode.simulate(1, panel, window)

    def reference_actions(self, observations: NDArray[np.float32]) -> NDArray[np.int64]:
        """Return the choices of one who is always long."""
        return np.full(len(observations), LONG)

    def orders(self, choices: NDArray[Any]) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """Positions that choices (n,) demand, and whether they trade, (n,) each."""
        return choices.astype(np.float64) - FLAT, np.ones(len(choices), np.bool_)


class FinAgentTrading(SingleAsset):
    """One name that a choice at every close sells, holds or buys, long only.

    Selling (0) sells all, holding (1) trades nothing, and buying (2) puts all cash in. Fills, costs and reward are
    those of `tradesim_algotrading`; buying a name that is not eligible at the close sells it.

    Source: Zhang et al. (2024), A Multimodal Foundation Agent for Financial Trading (FinAgent).
    """

    kind: Literal["finagent_trading"] = "finagent_trading"  # pyright: ignore[reportIncompatibleVariableOverride]

    def orders(self, choices: NDArray[Any]) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """Positions that choices (n,) demand, and whether they trade, (n,) each."""
        return (choices == BUY).astype(np.float64), choices != HOLD


class SingleAssetSimulation:
    """n accounts that trade one name, with episodes within windows of sessions.

    Every window is (first, last) by position: decisions begin at `first`, and prices up to `last` may be used. The
    scale of the observed bars is that of all returns known at the decision, those before the window included.

    Raises:
        ValueError: if the market lacks the symbol, or a window is beyond it or has no two sessions.
    """

    def __init__(
        self, panel: MarketPanel, world: SingleAsset, n_accounts: int, windows: Window | Sequence[Window] | None = None
    ) -> None:
        from gymnasium import spaces

        from nvtrader_pipelines.envs.accounts import RUIN, Accounts  # imports numba

        self.panel, self.world = panel_of_symbol(panel, world.symbol), world
        self.n_accounts, self.episode_len = n_accounts, world.episode_len
        spec = EnvSpec(
            turnover_cost_bps=world.turnover_cost_bps,
            fill=world.fill,
            financing=world.financing,
            rewards=(LogGrowth(),),
            vol_penalty=0.0,
        )
        self.windows = normalize_windows(windows or (0, len(panel.sessions) - 1))
        self._starts, self._ends = episodes_within(self.windows, world.episode_len, len(panel.sessions))
        traded = window_mask(self.windows, len(panel.sessions)) & self.panel.tradable[:, 0]
        if traded.sum() < 2:
            raise ValueError(
                f"{self.panel.symbols[0]} must have two sessions with prices or more between "
                f"{panel.sessions[self.windows[0][0]]} and {panel.sessions[self.windows[-1][1]]}, but has "
                f"{traded.sum()}; choose other days, or another symbol"
            )
        self._ruin, self.accounts = RUIN, Accounts(self.panel, spec, n_accounts, t=self.windows[0][0])
        self._bars, self._scale = self._latest_bars()
        self.steps = np.zeros(n_accounts, np.int64)
        self.ends = np.full(n_accounts, self._ends[0])  # last session of each episode
        self.observation_space: spaces.Space[Any] = spaces.Box(-np.inf, np.inf, (self._bars[0].size + 1,), np.float32)
        self.action_space: spaces.Space[Any] = spaces.Discrete(3)

    def reset(self, rows: Sequence[int], generators: Sequence[np.random.Generator]) -> None:
        """Begin episodes without a position, at starts drawn by each account's generator."""
        rows = list(rows)
        places = np.array([generator.integers(len(self._starts)) for generator in generators], np.int64)
        self.accounts.open(rows, self._starts[places].tolist())
        self.steps[rows], self.ends[rows] = 0, self._ends[places]

    def observe(self) -> NDArray[np.float32]:
        """Latest log returns, oldest first, over the root mean square of all known, and the position, (n, length)."""
        t = self.accounts.t
        bars = (self._bars[t] / self._scale[t, None, None]).reshape(self.n_accounts, -1)
        return np.hstack([bars, self.accounts.weights[:, :1]]).astype(np.float32)

    def step(self, actions: NDArray[Any]) -> WorldStep:
        """Trade the accounts whose choice trades to its position, and hold all to the next close."""
        choices = require_actions(actions, self.action_space, self.n_accounts)
        decided_at = self.accounts.t
        demanded, is_trading = self.world.orders(choices)
        position = np.where(self.panel.eligible[decided_at, 0], demanded, 0.0)
        account = self.accounts.trade(np.stack([position, 1.0 - position], axis=1), is_trading, n_sessions=1)
        self.steps = self.steps + 1
        terminated = self.accounts.equity <= self._ruin
        return WorldStep(
            observation=self.observe(),
            terms={"log_growth": account.reward},
            terminated=terminated,
            truncated=(self.accounts.t >= self.ends) & ~terminated,
            info={
                "session": self.panel.sessions[decided_at],
                "equity": self.accounts.equity.copy(),
                "turnover": account.transition.turnover,
                "position": account.transition.executed[:, 0],
                "cost": account.transition.cost,
            },
        )

    def state(self) -> Arrays:
        """Copies of all arrays that the next step depends on."""
        return {**self.accounts.state(), **{name: getattr(self, name).copy() for name in _EPISODES}}

    def restore(self, state: Arrays) -> None:
        """Continue from a `state`."""
        self.accounts.restore({name: array for name, array in state.items() if name not in _EPISODES})
        for name in _EPISODES:
            setattr(self, name, state[name].copy())

    def _latest_bars(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Bars up to each session, (T, B, lookback), 0 before the market; root mean square of its returns, (T,)."""
        arrays = [array for name in _BARS if (array := getattr(self.panel, name)) is not None]
        bars = np.log1p(np.hstack(arrays))
        tradable = self.panel.tradable[:, 0]
        scale = np.sqrt(np.cumsum(np.where(tradable, bars[:, 0], 0.0) ** 2) / np.maximum(np.cumsum(tradable), 1))
        padded = np.vstack([np.zeros((self.world.lookback - 1, bars.shape[1])), bars])
        latest = np.lib.stride_tricks.sliding_window_view(padded, self.world.lookback, axis=0)
        return latest, np.where(scale > 0.0, scale, 1.0)


def episodes_within(
    windows: Sequence[Window], episode_len: int, n_sessions: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """First and last session of every whole episode, or of each window that is shorter than one."""
    starts, ends = [], []
    for first, last in windows:
        if not 0 <= first < last < n_sessions:
            raise ValueError(
                f"a window must be two positions first < last within 0..{n_sessions - 1}, but is {first}..{last}; "
                "give it at least one session after its first"
            )
        starts.append(np.arange(first, max(first, last - episode_len) + 1))
        ends.append(np.minimum(starts[-1] + episode_len, last))
    return np.concatenate(starts), np.concatenate(ends)
