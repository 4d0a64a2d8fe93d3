"""World's simulation as a Stable-Baselines3 vector environment."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import VecEnv
from stable_baselines3.common.vec_env.base_vec_env import VecEnvIndices, VecEnvObs, VecEnvStepReturn
from typing_extensions import override

from nvtrader_pipelines.worlds.world import Arrays, Simulation


class WorldVecEnv(VecEnv):
    """Vector environment of n accounts of a world; an episode that ends is reset at once, as SB3 expects.

    Account `i` draws from a generator seeded with `[seed, i]`.
    """

    observation: NDArray[np.float32]  # (n, length) for the next actions

    def __init__(self, simulation: Simulation, seed: int = 0) -> None:
        self.simulation = simulation
        self._actions = np.zeros(0)
        self._generators: list[np.random.Generator] = []
        self._returns = np.zeros(simulation.n_accounts)
        super().__init__(simulation.n_accounts, simulation.observation_space, simulation.action_space)
        self.seed(seed)

    def seed(self, seed: int | None = None) -> Sequence[int | None]:
        """Seed the generator of account `i` with `[seed, i]`."""
        if seed is not None:
            self._generators = [np.random.default_rng([seed, i]) for i in range(self.num_envs)]
        return [seed] * self.num_envs

    def reset(self) -> VecEnvObs:
        """Start every episode."""
        self.simulation.reset(range(self.num_envs), self._generators)
        self._returns[:] = 0.0
        self.reset_infos = [{} for _ in range(self.num_envs)]
        self.observation = self.simulation.observe()
        return self.observation

    def step_async(self, actions: NDArray[Any]) -> None:
        """Store the actions for `step_wait`."""
        self._actions = actions

    def step_wait(self) -> VecEnvStepReturn:
        """Step all accounts; finished episodes are reset."""
        step = self.simulation.step(self._actions)
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

    def state(self) -> tuple[Arrays, dict[str, Any]]:
        """Return the state to `restore`: arrays, and values that JSON can hold."""
        generators = [generator.bit_generator.state for generator in self._generators]
        return {**self.simulation.state(), "returns": self._returns.copy()}, {"generators": generators}

    def restore(self, arrays: Arrays, facts: dict[str, Any]) -> None:
        """Resume from the `state` of an equal environment."""
        self.simulation.restore({name: array for name, array in arrays.items() if name != "returns"})
        self._returns = arrays["returns"].copy()
        for generator, state in zip(self._generators, facts["generators"], strict=True):
            generator.bit_generator.state = state
        self.observation = self.simulation.observe()

    def close(self) -> None:
        """Do nothing: no resource is open."""

    def get_attr(self, attr_name: str, indices: VecEnvIndices = None) -> list[Any]:
        """Return the shared attribute, once per requested account."""
        value = None if attr_name == "render_mode" else getattr(self.simulation, attr_name)
        return [value for _ in self._get_indices(indices)]

    @override
    def set_attr(self, attr_name: str, value: Any, indices: VecEnvIndices = None) -> None:
        """Raise: the accounts share one simulation."""
        raise AttributeError(f"accounts share one simulation: {attr_name!r} cannot be set per account")

    @override
    def env_method(
        self, method_name: str, *method_args: Any, indices: VecEnvIndices = None, **method_kwargs: Any
    ) -> list[Any]:
        """Raise: there are no inner environments."""
        raise AttributeError(f"there are no inner environments to call {method_name!r} on")

    @override
    def env_is_wrapped(self, wrapper_class: type, indices: VecEnvIndices = None) -> list[bool]:
        """Return True for SB3's `Monitor`: this environment reports its episodes itself."""
        return [wrapper_class is Monitor for _ in self._get_indices(indices)]
