"""Gymnasium environment of one account of a world, and the functions behind its ids."""

from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from nvtrader_pipelines.market.panel import MarketPanel, Window
from nvtrader_pipelines.market.sample import sample_panel
from nvtrader_pipelines.worlds.book_history import BookHistory
from nvtrader_pipelines.worlds.book_trading import BookTrading
from nvtrader_pipelines.worlds.market_making import MarketMaking, MarketMakingSimulation
from nvtrader_pipelines.worlds.order_execution import ExecutionSimulation, OrderExecution
from nvtrader_pipelines.worlds.single_asset import FinAgentTrading, SingleAsset, SingleAssetSimulation
from nvtrader_pipelines.worlds.world import Simulation


class WorldEnv(gymnasium.Env[NDArray[np.float32], Any]):
    """One account of a world's simulation, which has no other."""

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012 - declared by Gymnasium

    def __init__(self, simulation: Simulation) -> None:
        if simulation.n_accounts != 1:
            raise ValueError(f"WorldEnv takes a simulation of 1 account, not {simulation.n_accounts}; use WorldVecEnv")
        self.simulation = simulation
        self.observation_space, self.action_space = simulation.observation_space, simulation.action_space

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        """Begin an episode."""
        super().reset(seed=seed, options=options)
        self.simulation.reset([0], [self.np_random])
        return self.simulation.observe()[0], {}

    def step(self, action: Any) -> tuple[NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        """Carry out an action.

        Raises:
            ValueError: if the action has the wrong shape, contains a NaN, or is not a choice.
        """
        step = self.simulation.step(np.asarray(action)[None])
        info = {name: values[0].item() for name, values in step.info.items()}
        return step.observation[0], float(step.reward[0]), bool(step.terminated[0]), bool(step.truncated[0]), info


def order_execution_env(**knobs: Any) -> WorldEnv:
    """Environment `tradesim_execution-v0`; the knobs are fields of `OrderExecution`."""
    return WorldEnv(ExecutionSimulation(OrderExecution.model_validate(knobs), 1))


def single_asset_env(
    panel: MarketPanel | None = None, windows: Window | Sequence[Window] | None = None, **knobs: Any
) -> WorldEnv:
    """Environment `tradesim_algotrading-v0`, on the sample market by default; knobs are fields of `SingleAsset`."""
    return _asset_env(SingleAsset.model_validate(knobs), panel, windows)


def finagent_trading_env(
    panel: MarketPanel | None = None, windows: Window | Sequence[Window] | None = None, **knobs: Any
) -> WorldEnv:
    """Environment `finagent_trading-v0`, on the sample market by default; knobs are fields of `FinAgentTrading`."""
    return _asset_env(FinAgentTrading.model_validate(knobs), panel, windows)


def _asset_env(world: SingleAsset, panel: MarketPanel | None, windows: Window | Sequence[Window] | None) -> WorldEnv:
    return WorldEnv(SingleAssetSimulation(sample_panel() if panel is None else panel, world, 1, windows))


def market_making_env(**knobs: Any) -> WorldEnv:
    """Environment `market_making-v0`; the knobs are fields of `MarketMaking`."""
    return WorldEnv(MarketMakingSimulation(MarketMaking.model_validate(knobs), 1))


def book_trading_env(history: BookHistory | None = None, window: Window | None = None, **knobs: Any) -> WorldEnv:
    """Environment `tradesim_hft-v0`; the knobs are fields of `BookTrading`, a landed book needs history and window."""
    return WorldEnv(BookTrading.model_validate(knobs).simulate(1, history, window))
