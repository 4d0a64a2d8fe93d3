"""Episodes in groups: several from each start, side by side, each played to its own end."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from stable_baselines3.common.policies import ActorCriticPolicy
from torch import Tensor

from nvtrader_pipelines.envs.simulation import PortfolioSimulation
from nvtrader_pipelines.envs.spaces import action_space
from nvtrader_pipelines.policies.advantages import Episodes, Estimate
from nvtrader_pipelines.policies.agents.callbacks import TrainingLog
from nvtrader_pipelines.policies.trajectory import Played


@dataclass(frozen=True, eq=False)
class Steps:
    """n steps of any episodes, as an update takes them."""

    observations: Tensor  # (n, length)
    actions: Tensor  # (n, A)
    log_probs: Tensor  # (n,)
    advantages: Tensor  # (n,)
    returns: Tensor | None  # (n,) the critic's targets

    def at(self, chosen: Tensor) -> "Steps":
        """Some of the steps, by their places or a mask."""
        return Steps(
            observations=self.observations[chosen],
            actions=self.actions[chosen],
            log_probs=self.log_probs[chosen],
            advantages=self.advantages[chosen],
            returns=None if self.returns is None else self.returns[chosen],
        )


@dataclass(frozen=True, eq=False)
class Experience:
    """What E episodes of at most T steps saw, did and earned."""

    observations: Tensor  # (T, E, length)
    actions: Tensor  # (T, E, A) as drawn, before they are brought within bounds
    log_probs: Tensor  # (T, E)
    episodes: Episodes

    @property
    def n_steps(self) -> int:
        """Steps taken by all episodes together."""
        return int(self.episodes.mask.sum())

    def steps(self, estimate: Estimate) -> Steps:
        """The steps that were taken, with their estimates in the network's precision."""
        returns = estimate.returns
        every = Steps(
            observations=self.observations.flatten(0, 1),
            actions=self.actions.flatten(0, 1),
            log_probs=self.log_probs.flatten(),
            advantages=estimate.advantages.T.flatten().float(),
            returns=None if returns is None else returns.T.flatten().float(),
        )
        return every.at(self.episodes.mask.T.flatten() > 0.0)


def start_groups(simulation: PortfolioSimulation, generator: np.random.Generator, group_size: int) -> None:
    """Begin every portfolio's episode: `group_size` neighbours at one start, drawn for each group."""
    n_portfolios = len(simulation.steps)
    seeds = generator.integers(2**63, size=n_portfolios // group_size)
    simulation.reset(range(n_portfolios), [np.random.default_rng(seed) for seed in np.repeat(seeds, group_size)])


def play(
    simulation: PortfolioSimulation, policy: ActorCriticPolicy, group_size: int, log: TrainingLog, *, with_critic: bool
) -> Experience:
    """Play the episodes that have just begun until the last has ended, drawing actions from the policy.

    One that ends early is stepped on beside the others, within the stretches, but what it does then is under the mask.
    """
    player = _Player(simulation, policy, log, with_critic=with_critic)
    while player.running.any():
        player.step()
    return player.experience(group_size)


class _Player:
    """The episodes of one update while they are played."""

    def __init__(
        self, simulation: PortfolioSimulation, policy: ActorCriticPolicy, log: TrainingLog, *, with_critic: bool
    ) -> None:
        self.running = np.ones(len(simulation.steps), dtype=bool)
        self._simulation, self._policy, self._log, self._with_critic = simulation, policy, log, with_critic
        self._space = action_space(simulation)
        self._observation = simulation.observe()
        self._last = np.zeros_like(self._observation)  # of each episode
        self._truncated = np.zeros_like(self.running)
        self._seen: list[Tensor] = []
        self._done: list[tuple[Tensor, Tensor, Tensor]] = []  # actions, log-probabilities, values
        self._earned: list[tuple[NDArray[np.float64], NDArray[np.bool_]]] = []  # rewards, whether still running

    def step(self) -> None:
        """Play one step of every episode."""
        simulation, running, observation = self._simulation, self.running, self._observation
        seen = torch.as_tensor(observation)
        actions, log_probs, values = self._act(seen)
        within = np.clip(actions.numpy(), self._space.low, self._space.high)
        decided_at = simulation.accounts.t
        step = simulation.step(within)
        played = Played(observation, within, decided_at, simulation.accounts.drawdown, step, running)
        self._log.step(played, values if self._with_critic else None, log_probs)
        self._seen.append(seen)
        self._done.append((actions, log_probs, values))
        self._earned.append((step.reward, running))
        self._last[played.done] = step.observation[played.done]
        self._truncated[played.done] = step.truncated[played.done]
        self.running = running & ~played.done
        self._observation = simulation.observe() if simulation.rewind() else step.observation

    def experience(self, group_size: int) -> Experience:
        """All of it, once every episode has ended."""
        actions, log_probs, values = (torch.stack(parts) for parts in zip(*self._done, strict=True))
        rewards, running = (torch.as_tensor(np.stack(parts, axis=1)) for parts in zip(*self._earned, strict=True))
        mask = running.to(rewards.dtype)
        episodes = Episodes(
            rewards=rewards * mask,
            mask=mask,
            groups=torch.arange(len(rewards)) // group_size,
            values=values.T.to(rewards.dtype),
            final_values=self._final_values().to(rewards.dtype),
        )
        return Experience(torch.stack(self._seen), actions, log_probs, episodes)

    @torch.no_grad()
    def _act(self, observation: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        if self._with_critic:
            actions, values, log_probs = self._policy(observation)
            return actions, log_probs, values.flatten()
        distribution = self._policy.get_distribution(observation)
        actions = distribution.get_actions()
        return actions, distribution.log_prob(actions), torch.zeros(len(observation))

    @torch.no_grad()
    def _final_values(self) -> Tensor:
        if not self._with_critic:
            return torch.zeros(len(self._last))
        values = self._policy.predict_values(torch.as_tensor(self._last)).flatten()
        return torch.where(torch.as_tensor(self._truncated), values, 0.0)
