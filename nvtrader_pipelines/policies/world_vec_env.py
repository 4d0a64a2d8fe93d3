"""World's simulation as a Stable-Baselines3 vector environment."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from stable_baselines3.common.vec_env.base_vec_env import VecEnvStepReturn
from torch import Tensor

from nvtrader_pipelines.policies.agents.training_log import CurveLog
from nvtrader_pipelines.policies.fit import TrainingHooks
from nvtrader_pipelines.policies.shared_vec_env import SharedVecEnv
from nvtrader_pipelines.worlds.world import Simulation


class WorldVecEnv(SharedVecEnv[CurveLog]):
    """Vector environment of n accounts of a world; an episode that ends is reset at once, as SB3 expects.

    Account `i` draws from a generator seeded with `[seed, i]`.
    """

    simulation: Simulation

    def __init__(self, simulation: Simulation, seed: int = 0) -> None:
        self.simulation = simulation
        self._actions = np.zeros(0)
        self._generators: list[np.random.Generator] = []
        self._returns, self._mean_reward = np.zeros(simulation.n_accounts), 0.0
        super().__init__(simulation.n_accounts, simulation.observation_space, simulation.action_space)
        self.seed(seed)

    def seed(self, seed: int | None = None) -> Sequence[int | None]:
        """Seed the generator of account `i` with `[seed, i]`."""
        if seed is not None:
            self._generators = [np.random.default_rng([seed, i]) for i in range(self.num_envs)]
        return [seed] * self.num_envs

    def step_async(self, actions: NDArray[Any]) -> None:
        """Store the actions for `step_wait`."""
        self._actions = actions

    def step_wait(self) -> VecEnvStepReturn:
        """Step all accounts; finished episodes are reset."""
        step = self.simulation.step(self._actions)
        self._mean_reward = float(step.reward.mean())
        self._returns += step.reward
        done = step.terminated | step.truncated
        ended = done.nonzero()[0].tolist()
        infos: list[dict[str, Any]] = [{}] * self.num_envs  # one shared dict: finished episodes get their own
        self.observation = step.observation
        if ended:
            totals, lengths = self._returns.tolist(), self.simulation.steps.tolist()
            for i in ended:
                infos[i] = {
                    "terminal_observation": step.observation[i].copy(),
                    "TimeLimit.truncated": bool(step.truncated[i]),
                    "episode": {"r": totals[i], "l": lengths[i], "t": 0.0},
                }
            self.simulation.reset(ended, [self._generators[i] for i in ended])
            self._returns[ended] = 0.0
            self.observation = self.simulation.observe()
        return self.observation, step.reward.astype(np.float32), done, infos

    def start_log(self, hooks: TrainingHooks, total_timesteps: int, seed: int) -> CurveLog:
        """Return the log of a new training in this world."""
        identity = {"world": self.simulation.world.model_dump_json(), "number of accounts": self.num_envs}
        return CurveLog(hooks, identity, total_timesteps, seed)

    def record(self, log: CurveLog, values: Tensor | None, log_probs: Tensor | None) -> None:  # noqa: ARG002 - one signature
        """Record the mean reward of the last step."""
        log.add_reward(self._mean_reward)
