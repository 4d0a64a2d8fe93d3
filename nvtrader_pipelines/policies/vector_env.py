"""Simulation as a Stable-Baselines3 vector environment: n portfolios in one set of arrays."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from stable_baselines3.common.vec_env.base_vec_env import VecEnvIndices, VecEnvStepReturn
from torch import Tensor
from typing_extensions import override

from nvtrader_pipelines.envs.simulation import PortfolioSimulation
from nvtrader_pipelines.envs.spaces import action_rows, action_space, observation_space
from nvtrader_pipelines.policies.agents.training_log import TrainingLog
from nvtrader_pipelines.policies.fit import TrainingHooks
from nvtrader_pipelines.policies.shared_vec_env import SharedVecEnv
from nvtrader_pipelines.policies.trajectory import PlayedStep


class PortfolioVecEnv(SharedVecEnv[TrainingLog]):
    """Vector environment of n portfolios; an episode that ends is reset at once, as SB3 expects.

    Portfolio `i` draws its starts from a generator seeded with `seed * n + i`, so different seeds share no stream; a
    scalar environment reset with that number plays the same episodes.
    """

    simulation: PortfolioSimulation
    last_step: PlayedStep

    def __init__(self, simulation: PortfolioSimulation, seed: int = 0) -> None:
        self.simulation = simulation
        self._actions = np.zeros((0, 0), dtype=np.float32)
        self._generators: list[np.random.Generator] = []
        self._returns = np.zeros(len(simulation.steps))
        self._running = np.ones(len(simulation.steps), dtype=bool)  # always: a finished episode is reset at once
        super().__init__(len(simulation.steps), observation_space(simulation), action_space(simulation))
        self.seed(seed)

    def seed(self, seed: int | None = None) -> Sequence[int | None]:
        """Seed the generator of portfolio `i` of n with `seed * n + i`."""
        if seed is None:
            return [None] * self.num_envs
        seeds = [seed * self.num_envs + i for i in range(self.num_envs)]
        self._generators = [np.random.default_rng(value) for value in seeds]
        return seeds

    def step_async(self, actions: NDArray[Any]) -> None:
        """Store the actions for `step_wait`."""
        self._actions = action_rows(self.action_space, actions)

    def step_wait(self) -> VecEnvStepReturn:
        """Step all portfolios; finished episodes are reset."""
        simulation, decided_at = self.simulation, self.simulation.accounts.t
        step = simulation.step(self._actions)
        drawdown = simulation.accounts.drawdown
        self.last_step = PlayedStep(self.observation, self._actions, decided_at, drawdown, step, self._running)
        self._returns += step.reward
        done = self.last_step.done
        ended = done.nonzero()[0].tolist()
        infos: list[dict[str, Any]] = [{}] * self.num_envs  # one shared dict: finished episodes get their own
        self.observation = step.observation
        if ended:
            for i in ended:
                infos[i] = self._final_info(i)
            simulation.reset(ended, [self._generators[i] for i in ended])
            self._returns[ended] = 0.0
            self.observation = simulation.observe()
        return self.observation, step.reward.astype(np.float32), done, infos

    def start_log(self, hooks: TrainingHooks, total_timesteps: int, seed: int) -> TrainingLog:
        """Return the log of a new training on these portfolios."""
        return TrainingLog(hooks, self.simulation, total_timesteps, seed)

    def record(self, log: TrainingLog, values: Tensor | None, log_probs: Tensor | None) -> None:
        """Record the last step of all portfolios."""
        log.step(self.last_step, values, log_probs)

    def _final_info(self, i: int) -> dict[str, Any]:
        step = self.last_step.step
        return {
            "terminal_observation": step.observation[i].copy(),
            "TimeLimit.truncated": bool(step.truncated[i]),
            "episode": {"r": float(self._returns[i]), "l": int(self.simulation.steps[i]), "t": 0.0},
        }

    @override
    def env_method(
        self, method_name: str, *method_args: Any, indices: VecEnvIndices = None, **method_kwargs: Any
    ) -> list[Any]:
        """Call `action_masks`, for each requested portfolio; there are no inner environments for anything else."""
        if method_name == "action_masks":
            return list(self.simulation.action_masks()[list(self._get_indices(indices))])
        return super().env_method(method_name, *method_args, indices=indices, **method_kwargs)
