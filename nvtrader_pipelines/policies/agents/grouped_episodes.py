"""Rollouts of grouped episodes: several from each start, in parallel, each played to its end."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from stable_baselines3.common.policies import ActorCriticPolicy
from torch import Tensor

from nvtrader_pipelines.envs.simulation import PortfolioSimulation, Step
from nvtrader_pipelines.policies.advantages import Episodes, Estimate
from nvtrader_pipelines.policies.agents.training_log import TrainingLog
from nvtrader_pipelines.policies.trajectory import PlayedStep


@dataclass(frozen=True, eq=False)
class EpisodeSteps:
    """Batch of n steps for an update."""

    observations: Tensor  # (n, length)
    actions: Tensor  # (n, A)
    log_probs: Tensor  # (n,)
    advantages: Tensor  # (n,)
    returns: Tensor | None  # (n,) the critic's targets

    def select(self, chosen: Tensor) -> "EpisodeSteps":
        """Select steps by position or mask."""
        return EpisodeSteps(
            observations=self.observations[chosen],
            actions=self.actions[chosen],
            log_probs=self.log_probs[chosen],
            advantages=self.advantages[chosen],
            returns=None if self.returns is None else self.returns[chosen],
        )


@dataclass(frozen=True, eq=False)
class Experience:
    """Observations, actions and rewards of E episodes of at most T steps."""

    observations: Tensor  # (T, E, length)
    actions: Tensor  # (T, E, A) before clipping
    log_probs: Tensor  # (T, E)
    episodes: Episodes

    @property
    def n_steps(self) -> int:
        """Number of steps of all episodes together."""
        return int(self.episodes.mask.sum())

    def steps(self, estimate: Estimate) -> EpisodeSteps:
        """Unmasked steps with their estimates, in the network's precision."""
        returns = estimate.returns
        every = EpisodeSteps(
            observations=self.observations.flatten(0, 1),
            actions=self.actions.flatten(0, 1),
            log_probs=self.log_probs.flatten(),
            advantages=estimate.advantages.T.flatten().float(),
            returns=None if returns is None else returns.T.flatten().float(),
        )
        return every.select(self.episodes.mask.T.flatten() > 0.0)


def start_groups(simulation: PortfolioSimulation, generator: np.random.Generator, group_size: int) -> None:
    """Reset every portfolio: each group of `group_size` neighbors shares a randomly drawn start."""
    n_portfolios = len(simulation.steps)
    seeds = generator.integers(2**63, size=n_portfolios // group_size)
    simulation.reset(range(n_portfolios), [np.random.default_rng(seed) for seed in np.repeat(seeds, group_size)])


def play(
    simulation: PortfolioSimulation, policy: ActorCriticPolicy, group_size: int, log: TrainingLog, *, with_critic: bool
) -> Experience:
    """Play all episodes until the last one ends, with actions drawn from the policy.

    An episode that ends early is stepped along with the others, within the stretches; its later steps are masked.
    """
    player = _Player(simulation, policy, log, with_critic=with_critic)
    while player.running.any():
        player.step()
    return player.experience(group_size)


class RunningEpisodes:
    """Episodes of all portfolios, stepped together until the last one ends."""

    def __init__(self, simulation: PortfolioSimulation, log: TrainingLog) -> None:
        self.running = np.ones(len(simulation.steps), dtype=bool)
        self.observation = simulation.observe()
        self._simulation, self._log = simulation, log
        self._bound = simulation.spec.action.size(len(simulation.panel.symbols)).bound

    def step(self, actions: Tensor, values: Tensor | None = None, log_probs: Tensor | None = None) -> Step:
        """Step every episode with clipped actions (n, A), and record the step."""
        simulation = self._simulation
        clipped = np.clip(actions.numpy(), -self._bound, self._bound)
        decided_at = simulation.accounts.t
        step = simulation.step(clipped)
        played = PlayedStep(self.observation, clipped, decided_at, simulation.accounts.drawdown, step, self.running)
        self._log.step(played, values, log_probs)
        self.running = self.running & ~played.done
        self.observation = simulation.observe() if simulation.rewind() else step.observation
        return step


class _Player:
    """Episodes of one update in progress."""

    def __init__(
        self, simulation: PortfolioSimulation, policy: ActorCriticPolicy, log: TrainingLog, *, with_critic: bool
    ) -> None:
        self._episodes = RunningEpisodes(simulation, log)
        self._policy, self._with_critic = policy, with_critic
        self._final_observation = np.zeros_like(self._episodes.observation)
        self._truncated = np.zeros_like(self.running)
        self._observations: list[Tensor] = []
        self._outputs: list[tuple[Tensor, Tensor, Tensor]] = []  # actions, log-probabilities, values
        self._rewards: list[tuple[NDArray[np.float64], NDArray[np.bool_]]] = []  # rewards, and whether running

    @property
    def running(self) -> NDArray[np.bool_]:
        """Portfolios whose episode has not ended, (E,)."""
        return self._episodes.running

    def step(self) -> None:
        """Step every episode."""
        network_input, running = torch.as_tensor(self._episodes.observation), self.running
        actions, log_probs, values = self._act(network_input)
        step = self._episodes.step(actions, values if self._with_critic else None, log_probs)
        self._observations.append(network_input)
        self._outputs.append((actions, log_probs, values))
        self._rewards.append((step.reward, running))
        done = running & ~self.running
        self._final_observation[done] = step.observation[done]
        self._truncated[done] = step.truncated[done]

    def experience(self, group_size: int) -> Experience:
        """Return the finished episodes."""
        actions, log_probs, values = (torch.stack(parts) for parts in zip(*self._outputs, strict=True))
        rewards, running = (torch.as_tensor(np.stack(parts, axis=1)) for parts in zip(*self._rewards, strict=True))
        mask = running.to(rewards.dtype)
        episodes = Episodes(
            rewards=rewards * mask,
            mask=mask,
            groups=torch.arange(len(rewards)) // group_size,
            values=values.T.to(rewards.dtype),
            final_values=self._final_values().to(rewards.dtype),
        )
        return Experience(torch.stack(self._observations), actions, log_probs, episodes)

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
            return torch.zeros(len(self._final_observation))
        values = self._policy.predict_values(torch.as_tensor(self._final_observation)).flatten()
        return torch.where(torch.as_tensor(self._truncated), values, 0.0)
