"""Base classes of agents that act in worlds."""

from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, NonNegativeInt, PositiveInt

from nvtrader_pipelines.components.component import Component, kind_of
from nvtrader_pipelines.envs.observations import ObservationScaler
from nvtrader_pipelines.market.panel import Window
from nvtrader_pipelines.policies.agents.learner import MIN_SEEDS, finite_tensors
from nvtrader_pipelines.policies.fit import DEFAULT_HOOKS, Fit, TrainingHooks, TrainingPoint
from nvtrader_pipelines.worlds.world import Market, Simulation, World, cut_market

if TYPE_CHECKING:
    from gymnasium import spaces
    from stable_baselines3.common.policies import BasePolicy
    from torch import Tensor

    from nvtrader_pipelines.policies.agents.callbacks import Algorithm

Decide = Callable[[NDArray[np.float32]], NDArray[Any]]  # observations (n, length) to actions of all accounts


class BaseWorldAgent(Component):
    """Agent of one or more worlds."""

    is_classical: ClassVar[bool] = False
    min_seeds: ClassVar[int] = MIN_SEEDS
    worlds: ClassVar[tuple[str, ...]]  # kinds in which it can act

    total_timesteps: NonNegativeInt = 0  # steps of all accounts together in a training

    def require_world(self, world: World) -> None:
        """Raise if the agent cannot act in a world.

        Raises:
            ValueError: with the worlds that it can act in.
        """
        if kind_of(type(world)) not in self.worlds:
            raise ValueError(
                f"agent: {kind_of(type(self))} acts in {' or '.join(self.worlds)}, but the world is "
                f"{kind_of(type(world))}; choose another agent or world"
            )

    @abstractmethod
    def train(
        self,
        world: World,
        panel: Any,
        window: Window | None,
        seed: int,
        hooks: TrainingHooks = DEFAULT_HOOKS,
    ) -> Fit:
        """Train in a world; equal seeds give equal bytes.

        Raises:
            CheckpointError: if the hooks have a checkpoint and this training cannot resume from it.
            ValueError: if the training diverged, or the market does not suit the world.
        """

    @abstractmethod
    def start(self, simulation: Simulation, tensors: "Mapping[str, Tensor]") -> Decide:
        """Return the decisions of the trained policy, the most likely actions."""


class ClosedFormAgent(BaseWorldAgent):
    """Agent that decides by a formula; nothing is trained."""

    is_classical: ClassVar[bool] = True
    min_seeds: ClassVar[int] = 1

    total_timesteps: Annotated[int, Field(ge=0, le=0)] = 0  # nothing is trained

    def train(self, *_: Any, **__: Any) -> Fit:
        """Return a fit without tensors."""
        return Fit(tensors={}, scaler=ObservationScaler(), curve=[])

    def start(self, simulation: Simulation, tensors: "Mapping[str, Tensor]") -> Decide:  # noqa: ARG002 - one signature
        """Return the decisions of the formula, by default those of the world's reference."""
        return simulation.world.reference_actions


class WorldLearner(BaseWorldAgent):
    """Learner of Stable-Baselines3 over n accounts of a world, on one torch thread."""

    total_timesteps: NonNegativeInt = 100_000  # steps of all accounts together; the last rollout is completed
    n_envs: PositiveInt = 64  # parallel accounts
    learning_rate: Annotated[float, Field(ge=1e-5, le=1e-2)] = 1e-3
    gamma: Annotated[float, Field(ge=0.0, le=1.0)] = 1.0

    def train(
        self,
        world: World,
        panel: Any,
        window: Window | None,
        seed: int,
        hooks: TrainingHooks = DEFAULT_HOOKS,
    ) -> Fit:
        """Train a network in a world; equal seeds give equal bytes."""
        import torch
        from torch.distributions import Distribution

        from nvtrader_pipelines.policies.agents.checkpoints import learn
        from nvtrader_pipelines.policies.world_vec_env import WorldVecEnv

        torch.set_num_threads(1)
        Distribution.set_default_validate_args(False)
        model = self.model(world, panel, window, seed)
        env = model.get_env()
        assert isinstance(env, WorldVecEnv)
        log = learn(model, env, self.total_timesteps, hooks, seed)
        return Fit(tensors=finite_tensors(model.policy), scaler=ObservationScaler(), curve=log.points)

    @abstractmethod
    def model(self, world: World, panel: Any, window: Window | None, seed: int) -> "Algorithm":
        """Return the algorithm on a `WorldVecEnv` of the world, before its training."""

    @abstractmethod
    def network(self, observation_space: "spaces.Box", action_space: "spaces.Space[Any]") -> "BasePolicy":
        """Build a network for inference, to load a fit's tensors into."""

    def start(self, simulation: Simulation, tensors: "Mapping[str, Tensor]") -> Decide:
        """Return the decisions of the trained network, without noise."""
        import torch
        from gymnasium import spaces

        assert isinstance(simulation.observation_space, spaces.Box)
        network = self.network(simulation.observation_space, simulation.action_space)
        network.load_state_dict(dict(tensors))
        network.set_training_mode(False)

        def decide(observations: NDArray[np.float32]) -> NDArray[Any]:
            with torch.no_grad():
                return network._predict(torch.from_numpy(observations), deterministic=True).numpy()  # noqa: SLF001

        return decide


@dataclass(frozen=True)
class WorldTask:
    """Training of one policy in a world, for `train_all`."""

    fold: int
    seed: int
    world: World
    agent: BaseWorldAgent
    window: Window | None  # sessions to train on; None in a world without a market
    resume_from: bytes | None = None  # a checkpoint; an unusable one is ignored

    @property
    def total_timesteps(self) -> int:
        """Steps of the training."""
        return self.agent.total_timesteps

    @property
    def is_classical(self) -> bool:
        """Whether there is nothing to train."""
        return self.agent.is_classical

    def fit(self, panel: Market | None, send: Callable[[TrainingPoint | bytes], None]) -> Fit:
        """Train on the market until the end of the window; points and checkpoints are sent."""
        market = panel and cut_market(panel, self.window[1]) if self.window else None  # no agent sees later sessions
        return self.agent.train(self.world, market, self.window, self.seed, TrainingHooks(send, send, self.resume_from))
