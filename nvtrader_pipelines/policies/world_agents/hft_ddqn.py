"""Double DQN on an order book that learns from a dynamic program, too."""

from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveInt

from nvtrader_pipelines.components.component import Component
from nvtrader_pipelines.market.panel import Window
from nvtrader_pipelines.policies.agents.learner import no_optimizer
from nvtrader_pipelines.policies.backbones.backbone import OPTIMIZER
from nvtrader_pipelines.policies.world_agents.dqn import DqnLearner
from nvtrader_pipelines.worlds.book_history import FloatArray
from nvtrader_pipelines.worlds.book_trading import N_POSITIONS, BookSimulation, BookTrading
from nvtrader_pipelines.worlds.world import World, WorldStep

if TYPE_CHECKING:
    from gymnasium import spaces
    from stable_baselines3 import DQN
    from stable_baselines3.common.policies import BasePolicy

_LOWEST = -1e12  # value of a choice out of reach, in place of minus infinity


class HftQNet(Component):
    """Q-network with a layer over the book beside an embedding of the position, and punished choices out of reach.

    Source: TradeMaster's network of its high-frequency agent.
    """

    kind: Literal["hft_qnet"] = "hft_qnet"
    hidden: PositiveInt = 16  # units of the layer, of the embedding, and of the layer above both

    def settings(self, n_seen: int) -> dict[str, Any]:
        """Keyword arguments of the policy that reads the first columns of an observation."""
        from nvtrader_pipelines.policies.networks.hft_qnet import HftExtractor

        return {
            "features_extractor_class": HftExtractor,
            "features_extractor_kwargs": {"hidden": self.hidden, "n_choices": N_POSITIONS, "n_seen": n_seen},
            "net_arch": [self.hidden],
        }


class HftDdqnAgent(DqnLearner):
    """Double DQN over eleven positions, with the divergence from a dynamic program in its loss.

    The program knows the training's book from end to end: the best positions with all costs, flat at both ends of
    every stretch. Rewards are in deviations of a step's gain of the largest position. No policy keeps the program.

    Source: TradeMaster's high-frequency agent; Qin et al. (2023), EarnHFT, for the program's values.
    """

    worlds: ClassVar[tuple[str, ...]] = ("tradesim_hft",)
    max_grad_norm: ClassVar[float] = 3.0

    kind: Literal["hft_ddqn"] = "hft_ddqn"
    total_timesteps: NonNegativeInt = 60_000  # steps of all accounts together
    gamma: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.99
    buffer_size: PositiveInt = 100_000
    batch_size: PositiveInt = 512
    exploration_final_eps: Annotated[float, Field(ge=0.0, le=1.0)] = 0.01
    backbone: HftQNet = HftQNet()
    distillation: NonNegativeFloat = 1.0  # weight of the divergence from the program

    def model(self, world: World, panel: Any, window: Window | None, seed: int) -> "DQN":
        """Return the algorithm on accounts whose observations end with the program's values."""
        from nvtrader_pipelines.policies.networks.hft_qnet import DistilledDQN, HftQNetPolicy

        assert isinstance(world, BookTrading)
        taught = ProgramSimulation(world, self.n_envs, *world.book(panel, window))
        (n_seen,) = taught.observation_space.shape or (0,)
        taught.solve()
        settings = {**self.backbone.settings(n_seen), "optimizer_kwargs": OPTIMIZER}
        model = self.dqn(DistilledDQN, HftQNetPolicy, taught, seed, **settings)
        assert isinstance(model, DistilledDQN)
        model.distillation = self.distillation
        return model

    def network(self, observation_space: "spaces.Box", action_space: "spaces.Space[Any]") -> "BasePolicy":
        """Build the network of values."""
        from nvtrader_pipelines.policies.networks.hft_qnet import HftQNetPolicy

        (n_seen,) = observation_space.shape
        return HftQNetPolicy(
            observation_space,
            action_space,  # pyright: ignore[reportArgumentType] - `Discrete` in this world
            lambda _: 0.0,
            **self.backbone.settings(n_seen),
            optimizer_class=no_optimizer,  # pyright: ignore[reportArgumentType] - nothing is optimized
        )


class ProgramSimulation(BookSimulation):
    """Simulation whose observations end with the values of a program that knows the book; for training alone."""

    def solve(self) -> None:
        """Compute the program of every stretch; gains are in deviations of a step's."""
        from gymnasium import spaces

        inside = np.concatenate([self.moves[first:last] for first, last in self.windows])
        self._deviation = float((N_POSITIONS - 1) * inside.std()) or 1.0
        self._future = program_values(self)
        box = self.observation_space
        assert isinstance(box, spaces.Box)
        edges = np.full(N_POSITIONS, np.inf, np.float32)
        self.observation_space: spaces.Space[Any] = spaces.Box(np.append(box.low, -edges), np.append(box.high, edges))

    def observe(self) -> NDArray[np.float32]:
        """Observations of the accounts, then the program's values of the choices, (n, length + N_POSITIONS)."""
        values = self.gains_of_trading() + np.arange(N_POSITIONS) * self.moves[self.t, None]
        values = (values + self._future[np.minimum(self.t + 1, len(self._future) - 1)]) / self._deviation
        return np.hstack([super().observe(), np.maximum(values, _LOWEST)], dtype=np.float32)

    def step(self, actions: NDArray[Any]) -> WorldStep:
        """Trade every account; terms are in deviations."""
        value = self.world.max_position * self.first_price
        step = super().step(actions)
        return step._replace(terms={name: term * value / self._deviation for name, term in step.terms.items()})


def program_values(simulation: BookSimulation) -> FloatArray:
    """Gain to come of the best choices by time and position held, (T, N_POSITIONS); 0 at the end of a stretch.

    In the last step of a stretch the position is sold as far as the book holds it, as in the simulation.
    """
    values = np.zeros_like(simulation.trading[:, :N_POSITIONS])
    positions = np.arange(N_POSITIONS)
    changes = positions - positions[:, None] + N_POSITIONS - 1  # by position held and chosen
    for first, last in simulation.windows:
        gains = simulation.trading[last - 1][changes]
        lowest = (gains > -np.inf).argmax(axis=1)
        values[last - 1] = gains[positions, lowest] + lowest * simulation.moves[last - 1]
        for t in range(last - 2, first - 1, -1):
            ahead = positions * simulation.moves[t] + values[t + 1]
            values[t] = (simulation.trading[t][changes] + ahead).max(axis=1)
    return values
