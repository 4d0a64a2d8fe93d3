"""Base of vector environments for Stable-Baselines3 whose accounts share one simulation."""

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import VecEnv
from stable_baselines3.common.vec_env.base_vec_env import VecEnvIndices, VecEnvObs
from torch import Tensor
from typing_extensions import override

from nvtrader_pipelines.policies.fit import TrainingHooks

if TYPE_CHECKING:
    from nvtrader_pipelines.policies.agents.training_log import CurveLog

Log = TypeVar("Log", bound="CurveLog")


class SharedVecEnv(VecEnv, Generic[Log]):
    """Vector environment over one `simulation` of all accounts, with a generator for each."""

    observation: NDArray[np.float32]  # (n, length) for the next actions
    simulation: Any
    _generators: list[np.random.Generator]
    _returns: NDArray[np.float64]  # (n,) sum of rewards of the running episodes

    def reset(self) -> VecEnvObs:
        """Start every episode."""
        self.simulation.reset(range(self.num_envs), self._generators)
        self._returns[:] = 0.0
        self.reset_infos = [{} for _ in range(self.num_envs)]
        self.observation = self.simulation.observe()
        return self.observation

    @abstractmethod
    def start_log(self, hooks: TrainingHooks, total_timesteps: int, seed: int) -> Log:
        """Return the log of a new training in this environment."""

    @abstractmethod
    def record(self, log: Log, values: Tensor | None, log_probs: Tensor | None) -> None:
        """Record the last step of all accounts, with values and log-probabilities of its actions if there are any."""

    def state(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        """Return the state to `restore`: arrays, and values that JSON can hold."""
        simulation = {f"simulation.{name}": array for name, array in self.simulation.state().items()}
        generators = [generator.bit_generator.state for generator in self._generators]
        return {**simulation, "returns": self._returns.copy()}, {"generators": generators}

    def restore(self, arrays: dict[str, NDArray[Any]], facts: dict[str, Any]) -> None:
        """Resume from the `state` of an equal environment."""
        start = "simulation."
        inner = {name.removeprefix(start): array for name, array in arrays.items() if name.startswith(start)}
        self.simulation.restore(inner)
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
