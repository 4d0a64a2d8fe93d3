"""Training of an actor on windows that the differentiable market plays, without a critic."""

from abc import ABC, abstractmethod
from typing import Any, Generic, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from nvtrader_pipelines.components.component import kind_of
from nvtrader_pipelines.envs.observations.builder import AccountView
from nvtrader_pipelines.envs.simulation import PortfolioSimulation
from nvtrader_pipelines.envs.spaces import action_space, observation_space
from nvtrader_pipelines.policies.acceleration import DEVICE, accelerated, training_device
from nvtrader_pipelines.policies.agents.checkpoints import (
    add_prefix,
    checkpoint_errors,
    numpy_arrays,
    optimizer_state,
    pack,
    restore_optimizer,
    strip_prefix,
    unpack,
)
from nvtrader_pipelines.policies.agents.pathwise_settings import PathwiseSettings, WindowSettings
from nvtrader_pipelines.policies.agents.training_log import TrainingLog
from nvtrader_pipelines.policies.fit import TrainingHooks
from nvtrader_pipelines.policies.pathwise.action_maps import start_map
from nvtrader_pipelines.policies.pathwise.transition import MarketTensors, hold_unchecked, soft_drawdown

SettingsT = TypeVar("SettingsT", bound=WindowSettings)
STARTS = 0x70  # separates the random stream of the starts
SMOOTHING = 1e-6  # of |dw| in the loss's costs
RUIN = 1e-6  # least growth of a session whose logarithm the loss takes


class WindowTraining(ABC, Generic[SettingsT]):
    """State of a training between two updates: networks, optimizers and the random stream of the starts."""

    n_compared: int = 1  # neighboring windows that the loss compares

    def __init__(self, agent: SettingsT, simulation: PortfolioSimulation, seed: int, hooks: TrainingHooks) -> None:
        torch.manual_seed(seed)
        self.timesteps, self._device = 0, training_device()
        self.log = TrainingLog(hooks, simulation, agent.total_timesteps, seed)
        policy_class, policy_kwargs = agent.policy(simulation.builder.layout)
        spaces = observation_space(simulation), action_space(simulation)
        self.policy = policy_class(*spaces, agent.schedule(), **policy_kwargs)
        agent.prepare(self.policy, simulation, seed, hooks.start)
        self.policy.to(self._device)
        self._agent, self._simulation = agent, simulation
        self._market = MarketTensors.of(simulation.panel, simulation.spec).to(self._device)
        self._to_weights = start_map(simulation.spec.action, simulation.panel, self._device)
        self._hold = accelerated(hold_unchecked)
        self._starts = window_starts(simulation, agent.n_steps)
        self._generator, self._n_parts = np.random.default_rng([seed, STARTS]), 1
        self._draws: list[Tensor] = []  # of decisions, in the windows that are played, where actions are drawn
        self._networks: dict[str, nn.Module] = {"policy": self.policy}  # of a checkpoint
        self._optimizers: dict[str, torch.optim.Optimizer] = {"optimizer": self.policy.optimizer}

    def update(self) -> None:
        """Play one batch of windows and train on it."""
        agent, policy = self._agent, self.policy
        self.log.start_rollout(self.timesteps, self.save)
        remaining = 1.0 - self.timesteps / agent.total_timesteps
        policy.set_training_mode(True)
        scalars = self._add_gradients(self._draw_starts())
        norm = nn.utils.clip_grad_norm_(policy.parameters(), agent.max_grad_norm)
        for optimizer in self._optimizers.values():
            for group in optimizer.param_groups:
                group["lr"] = agent.schedule()(remaining) * group.get("lr_scale", 1.0)
            optimizer.step()
        self.log.add_reward(scalars.pop("log_growth") / agent.n_steps)
        for name, value in {**scalars, "grad_norm": float(norm)}.items():
            self.log.logger.record_mean(f"train/{name}", value)
        self.timesteps += agent.n_portfolios * agent.n_steps
        self.log.end_rollout(self.timesteps)

    def save(self) -> bytes:
        """Return a checkpoint; an update depends on no account of the one before."""
        log_arrays, log_facts = self.log.state()
        states = {name: optimizer_state(optimizer) for name, optimizer in self._optimizers.items()}
        arrays = {**add_prefix("log", log_arrays), "torch_random": torch.get_rng_state()}
        if self._device.type == "cuda":
            arrays["gpu_random"] = torch.cuda.get_rng_state(self._device)
        for name, network in self._networks.items():
            arrays |= add_prefix(name, network.state_dict())
        for name, (tensors, _) in states.items():
            arrays |= add_prefix(name, tensors)
        facts: dict[str, Any] = {
            "algorithm": kind_of(type(self._agent)),
            "timesteps": self.timesteps,
            "optimizers": {name: numbers for name, (_, numbers) in states.items()},
            "log": log_facts,
            "generator": self._generator.bit_generator.state,
        }
        return pack(arrays, facts)

    def restore(self, content: bytes) -> None:
        """Bring a new training into a saved state.

        Raises:
            CheckpointError: if the checkpoint is damaged or of another training, which is then unusable.
        """
        arrays, facts = unpack(content)
        with checkpoint_errors():
            if facts["algorithm"] != kind_of(type(self._agent)):
                raise ValueError(f"its algorithm is {facts['algorithm']}, not {kind_of(type(self._agent))}")
            self.log.restore(numpy_arrays(arrays, "log"), facts["log"])
            for name, network in self._networks.items():
                network.load_state_dict(strip_prefix(name, arrays))
            for name, optimizer in self._optimizers.items():
                restore_optimizer(optimizer, strip_prefix(name, arrays), facts["optimizers"][name])
            self.timesteps = facts["timesteps"]
            self._generator.bit_generator.state = facts["generator"]
            torch.set_rng_state(arrays["torch_random"])
            if self._device.type == "cuda" and "gpu_random" in arrays:  # one of a CPU has none
                torch.cuda.set_rng_state(arrays["gpu_random"], self._device)

    def _add_gradients(self, starts: NDArray[np.int64]) -> dict[str, float]:
        """Play windows and add up the gradients of their loss, in as few parts as the memory holds; return scalars.

        What is compared stays in one part, so that parts change results by rounding, and by other draws. DeepTrader
        standardizes rewards within a part.

        Raises:
            ValueError: if the smallest part is too large for the memory.
        """
        compared = starts.reshape(-1, self.n_compared) if len(starts) % self.n_compared == 0 else starts[None]
        while True:
            self.policy.zero_grad()
            scalars: dict[str, float] = {}
            try:
                for part in np.array_split(compared, self._n_parts):
                    for name, value in self._train_on(part.ravel(), part.size / starts.size).items():
                        scalars[name] = scalars.get(name, 0.0) + value
            except torch.OutOfMemoryError as error:
                if self._n_parts >= len(compared):
                    raise ValueError(
                        f"{compared.shape[1]} windows of {self._agent.n_steps} decisions are too many for the memory "
                        f"of the GPU: {str(error).partition('.')[0]}; set ${DEVICE} to cpu, or choose a smaller network"
                    ) from error
                self._n_parts = min(2 * self._n_parts, len(compared))
            else:
                return scalars

    def _train_on(self, starts: NDArray[np.int64], share: float) -> dict[str, float]:
        """Add the gradient of the loss of windows that are a share of an update; return scalars times the share."""
        self._draws.clear()
        log_growth, turnover = self._play(starts)
        scalars = self._loss(log_growth, turnover)
        (share * scalars["loss"]).backward()
        scalars |= {"turnover": turnover.mean(), "log_growth": log_growth.sum(dim=1).mean()}
        return {name: share * float(value.detach()) for name, value in scalars.items()}

    @abstractmethod
    def _draw_starts(self) -> NDArray[np.int64]:
        """First decisions (n,) of the windows of an update."""

    @abstractmethod
    def _loss(self, log_growth: Tensor, turnover: Tensor) -> dict[str, Tensor]:
        """Loss of the windows that `_play` returned, and further scalars to record."""

    def _play(self, starts: NDArray[np.int64]) -> tuple[Tensor, Tensor]:
        """Decide `n_steps` times from each start; return log growth (n, S) of sessions, and turnover (n,) of decisions.

        Accounts begin with what the policy would hold from cash, so that no window pays for a first purchase.
        """
        n_sessions, t = self._simulation.spec.rebal_freq, starts.copy()
        width = len(self._simulation.panel.symbols) + 1
        weights = torch.zeros(len(t), width, dtype=torch.float64, device=self._device)
        weights[:, -1] = 1.0
        wealth, peak = np.ones(len(t)), np.ones(len(t))
        with torch.no_grad():
            weights = self._decide(t, weights, 1.0 - wealth / peak)
        growths, turnover = [], torch.zeros(len(t), dtype=torch.float64, device=self._device)
        for _ in range(self._agent.n_steps):
            target = self._explore(t, weights, 1.0 - wealth / peak)
            held = self._hold(self._market, weights, target, self._sessions(t), n_sessions, SMOOTHING)
            weights, turnover = held.weights, turnover + held.turnover / self._agent.n_steps
            growths.append(held.growth.clamp(min=RUIN).log())
            path = wealth[:, None] * np.exp(growths[-1].detach().cpu().numpy().cumsum(axis=1))
            wealth, peak = path[:, -1], np.maximum(peak, path.max(axis=1))
            t = t + n_sessions
        return torch.cat(growths, dim=1), turnover

    def _observe(self, t: NDArray[np.int64], weights: Tensor, drawdown: NDArray[np.float64]) -> Tensor:
        """Observations (n, length); the gradient takes the observed account as given."""
        view = AccountView(weights.detach().cpu().numpy(), drawdown)
        return torch.as_tensor(self._simulation.builder.observe(t, view), device=self._device)

    def _sessions(self, t: NDArray[np.int64]) -> Tensor:
        """Sessions (n,) on the device."""
        return torch.from_numpy(t).to(self._device)

    def _decide(self, t: NDArray[np.int64], weights: Tensor, drawdown: NDArray[np.float64]) -> Tensor:
        """Target weights (n, N+1) of the policy."""
        return self._to_weights(self._act(self._observe(t, weights, drawdown)), self._sessions(t))

    def _act(self, observation: Tensor) -> Tensor:
        """Raw actions (n, A) of observations (n, length)."""
        return self.policy._predict(observation, deterministic=True)  # noqa: SLF001 - no public method takes tensors

    def _explore(self, t: NDArray[np.int64], weights: Tensor, drawdown: NDArray[np.float64]) -> Tensor:
        """Target weights (n, N+1) within a window; by default those of `_decide`."""
        return self._decide(t, weights, drawdown)

    def _objectives(self, log_growth: Tensor, drawdown_penalty: float) -> Tensor:
        """Annual objective (n,) of windows, less the penalty for drawdowns."""
        objective = self._agent.objective_of(log_growth, self._simulation.panel.calendar.periods_per_year)
        if not drawdown_penalty:
            return objective
        opening = log_growth.new_zeros(len(log_growth), 1)
        return objective - drawdown_penalty * soft_drawdown(torch.cat([opening, log_growth.cumsum(dim=1)], dim=1))


class PathwiseTraining(WindowTraining[PathwiseSettings]):
    """Training by the gradient of what the weights earn, without noise."""

    def _draw_starts(self) -> NDArray[np.int64]:
        return self._generator.choice(self._starts, self._agent.n_envs)

    def _loss(self, log_growth: Tensor, turnover: Tensor) -> dict[str, Tensor]:
        return {"loss": -self._objective(log_growth, turnover)}

    def _objective(self, log_growth: Tensor, turnover: Tensor) -> Tensor:
        """Mean annual objective of the windows, less the penalties."""
        traded = turnover * self._simulation.panel.calendar.periods_per_year / self._simulation.spec.rebal_freq
        objectives = self._objectives(log_growth, self._agent.drawdown_penalty)
        return (objectives - self._agent.turnover_penalty * traded).mean()


def window_starts(simulation: PortfolioSimulation, n_steps: int) -> NDArray[np.int64]:
    """First decisions of all windows of `n_steps` decisions that end within their stretch.

    Raises:
        ValueError: if no stretch is as long.
    """
    n_sessions = n_steps * simulation.spec.rebal_freq
    starts = [np.arange(first, last - n_sessions + 1) for first, last in simulation.stretches]
    if not sum(map(len, starts)):
        raise ValueError(
            f"a window of {n_steps} decisions takes {n_sessions} sessions, but no stretch of the training has so many "
            f"after its first: {', '.join(f'{last - first}' for first, last in simulation.stretches)}; lower n_steps"
        )
    return np.concatenate(starts)
