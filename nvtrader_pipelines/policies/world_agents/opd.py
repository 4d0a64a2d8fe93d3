"""Oracle policy distillation: a teacher that sees the moves to come teaches one that does not."""

from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import PositiveFloat, PositiveInt

from nvtrader_pipelines.market.panel import MarketPanel, Window
from nvtrader_pipelines.policies.world_agents.eteo import ExecutionLearner
from nvtrader_pipelines.policies.world_agents.execution_backbones import ExecutionBackbone, PdDualRnn
from nvtrader_pipelines.worlds.order_execution import ExecutionSimulation, OrderExecution
from nvtrader_pipelines.worlds.world import World

if TYPE_CHECKING:
    from stable_baselines3 import PPO


class OpdAgent(ExecutionLearner):
    """PPO whose loss has the divergence from a teacher's policy, which is trained first on the same days.

    The teacher also reads the next moves of the price. It is trained as long as the policy, on the market up to the
    last training day, and no policy keeps it. A resumed training trains the same teacher again.

    Source: Fang et al. (2021), Universal Trading for Order Execution with Oracle Policy Distillation.
    """

    kind: Literal["opd"] = "opd"
    backbone: ExecutionBackbone = PdDualRnn()
    foresight: PositiveInt = 10  # moves to come that the teacher reads
    distillation: PositiveFloat = 0.01  # weight of the divergence, lambda

    def model(self, world: World, panel: MarketPanel | None, window: Window | None, seed: int) -> "PPO":
        """Train the teacher; return PPO for its student."""
        from stable_baselines3.common.logger import Logger

        from nvtrader_pipelines.policies.networks.execution_policy import DistilledPolicy, DualHeadPolicy

        assert isinstance(world, OrderExecution)
        foreseeing = ForesightSimulation(world, self.n_envs, panel, window)
        foreseeing.look_ahead(self.foresight)
        teacher = self.ppo(foreseeing, DualHeadPolicy, seed)
        teacher.set_logger(Logger(None, []))  # SB3's default one leaves a folder
        teacher.learn(self.total_timesteps)
        n_seen = 3 + world.lookback
        student = self.ppo(foreseeing, DistilledPolicy, seed, ent_coef=self.distillation, n_seen=n_seen)
        assert isinstance(student.policy, DistilledPolicy)
        student.policy.teacher = (teacher.policy,)
        return student


class ForesightSimulation(ExecutionSimulation):
    """Orders whose observations end with the moves to come; for training alone, on a panel that ends with it."""

    n_ahead = 0

    def look_ahead(self, n_moves: int) -> None:
        """Set the number of moves."""
        from gymnasium import spaces

        self.n_ahead, box = n_moves, self.observation_space
        assert isinstance(box, spaces.Box)
        edges = np.full(n_moves, np.inf, np.float32)
        self.observation_space: spaces.Space[Any] = spaces.Box(np.append(box.low, -edges), np.append(box.high, edges))

    def observe(self) -> NDArray[np.float32]:
        """Observations of the orders, then the next moves, (n, 3 + lookback + n_ahead)."""
        place = np.minimum(self.steps, self.world.n_steps)
        ahead = self.moves_from(place + self.world.lookback, self.n_ahead)
        return np.hstack([super().observe(), ahead], dtype=np.float32)
