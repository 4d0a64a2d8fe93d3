"""DQN in worlds whose actions are choices."""

from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Self

from pydantic import Field, PositiveInt, model_validator

from nvtrader_pipelines.policies.world_agents.base import WorldLearner
from nvtrader_pipelines.worlds.world import Simulation

if TYPE_CHECKING:
    from stable_baselines3 import DQN
    from stable_baselines3.dqn.policies import DQNPolicy


class DqnLearner(WorldLearner):
    """DQN with a replay of the latest steps and a slow target network."""

    max_grad_norm: ClassVar[float] = 10.0

    gamma: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.9
    n_envs: PositiveInt = 16  # parallel accounts
    buffer_size: PositiveInt = 50_000  # latest steps of all accounts
    learning_starts: PositiveInt = 1_000  # steps of all accounts with random choices before the first update
    batch_size: PositiveInt = 256  # replayed steps per update
    gradient_steps: PositiveInt = 1  # updates per step of all accounts
    tau: Annotated[float, Field(gt=0.0, le=1.0)] = 0.005  # Polyak coefficient of the target network
    exploration_fraction: Annotated[float, Field(gt=0.0, le=1.0)] = 0.2  # of the training, in which epsilon falls
    exploration_final_eps: Annotated[float, Field(ge=0.0, le=1.0)] = 0.05

    @model_validator(mode="after")
    def _require_updates(self) -> Self:
        if self.learning_starts >= self.total_timesteps:
            raise ValueError(
                f"learning_starts = {self.learning_starts} must be less than total_timesteps = {self.total_timesteps}"
            )
        return self

    def dqn(
        self,
        algorithm: "type[DQN]",
        policy: "str | type[DQNPolicy]",
        simulation: Simulation,
        seed: int,
        **policy_settings: Any,
    ) -> "DQN":
        """Return an algorithm with these settings on the accounts of a simulation."""
        from nvtrader_pipelines.policies.world_vec_env import WorldVecEnv

        return algorithm(
            policy,
            WorldVecEnv(simulation, seed),
            policy_kwargs=policy_settings,
            learning_rate=self.learning_rate,
            buffer_size=self.buffer_size,
            learning_starts=self.learning_starts,
            batch_size=self.batch_size,
            tau=self.tau,
            gamma=self.gamma,
            train_freq=1,
            gradient_steps=self.gradient_steps,
            target_update_interval=self.n_envs,
            exploration_fraction=self.exploration_fraction,
            exploration_initial_eps=1.0,
            exploration_final_eps=self.exploration_final_eps,
            max_grad_norm=self.max_grad_norm,
            seed=seed,
            device="cpu",
        )
