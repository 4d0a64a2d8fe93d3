"""Training on grouped episodes, update by update."""

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from nvtrader_pipelines.components.component import kind_of
from nvtrader_pipelines.envs.simulation import PortfolioSimulation
from nvtrader_pipelines.envs.spaces import action_space, observation_space
from nvtrader_pipelines.policies.advantages import Estimate
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
from nvtrader_pipelines.policies.agents.grouped_episodes import EpisodeSteps, Experience, play, start_groups
from nvtrader_pipelines.policies.agents.grouped_settings import GroupedSettings
from nvtrader_pipelines.policies.agents.training_log import TrainingLog
from nvtrader_pipelines.policies.fit import TrainingHooks

GROUPS = 0x47  # separates the random stream of the groups' starts from that of the sampler


class GroupedTraining:
    """State of a training between two updates: policy, optimizer and random streams."""

    def __init__(
        self, agent: GroupedSettings, simulation: PortfolioSimulation, seed: int, hooks: TrainingHooks
    ) -> None:
        torch.manual_seed(seed)
        self.timesteps = 0
        self.log = TrainingLog(hooks, simulation, agent.total_timesteps, seed)
        policy_class, policy_kwargs = agent.policy(simulation.builder.layout)
        spaces = observation_space(simulation), action_space(simulation)
        self.policy = policy_class(*spaces, agent.schedule(), **policy_kwargs)
        agent.prepare(self.policy, simulation, seed, hooks.start)
        self._agent, self._simulation = agent, simulation
        self._generator = np.random.default_rng([seed, GROUPS])
        if hooks.resume_from is not None:
            self._restore(hooks.resume_from)

    def update(self) -> None:
        """Play one round of groups and train on it."""
        self.log.start_rollout(self.timesteps, self.save)
        self.policy.set_training_mode(False)
        group_size, advantage = self._agent.group_size, self._agent.advantage
        start_groups(self._simulation, self._generator, group_size)
        experience = play(self._simulation, self.policy, group_size, self.log, with_critic=advantage.uses_critic)
        self.timesteps += experience.n_steps
        self.log.end_rollout(self.timesteps)
        self._learn(experience, advantage.estimate(experience.episodes, self._agent.gamma))

    def save(self) -> bytes:
        """Return a checkpoint; the simulation has no state, since every update starts new episodes."""
        log_arrays, log_facts = self.log.state()
        optimizer_tensors, optimizer_numbers = optimizer_state(self.policy.optimizer)
        arrays = {
            **add_prefix("policy", self.policy.state_dict()),
            **add_prefix("optimizer", optimizer_tensors),
            **add_prefix("log", log_arrays),
            "torch_random": torch.get_rng_state(),
        }
        facts: dict[str, Any] = {
            "algorithm": kind_of(type(self._agent)),
            "timesteps": self.timesteps,
            "optimizer": optimizer_numbers,
            "log": log_facts,
            "generator": self._generator.bit_generator.state,
        }
        return pack(arrays, facts)

    def _restore(self, content: bytes) -> None:
        arrays, facts = unpack(content)
        with checkpoint_errors():
            if facts["algorithm"] != kind_of(type(self._agent)):
                raise ValueError(f"its algorithm is {facts['algorithm']}, not {kind_of(type(self._agent))}")
            self.log.restore(numpy_arrays(arrays, "log"), facts["log"])
            self.policy.load_state_dict(strip_prefix("policy", arrays))
            restore_optimizer(self.policy.optimizer, strip_prefix("optimizer", arrays), facts["optimizer"])
            self.timesteps = facts["timesteps"]
            self._generator.bit_generator.state = facts["generator"]
            torch.set_rng_state(arrays["torch_random"])

    def _learn(self, experience: Experience, estimate: Estimate) -> None:
        agent = self._agent
        remaining = 1.0 - self.timesteps / agent.total_timesteps
        ent_coef = agent.entropy_coefficient(remaining)
        self.log.logger.record("train/ent_coef", ent_coef)
        for group in self.policy.optimizer.param_groups:
            group["lr"] = agent.schedule()(remaining)
        self.policy.set_training_mode(True)
        steps = experience.steps(estimate)
        for _ in range(agent.n_epochs):
            order = torch.randperm(len(steps.actions))
            for chosen in order.tensor_split(min(agent.n_minibatches, len(order))):
                self._descend(steps.select(chosen), ent_coef)

    def _descend(self, steps: EpisodeSteps, ent_coef: float) -> None:
        agent, policy = self._agent, self.policy
        log_probs, entropy, values = self._evaluate(steps)
        losses = clipped_policy_loss(
            log_probs,
            steps.log_probs,
            steps.advantages,
            clip_range=agent.clip_range,
            clip_range_high=agent.clip_range_high,
        )
        loss = losses.mean() - ent_coef * entropy.mean()
        if values is not None and steps.returns is not None:
            loss = loss + agent.vf_coef * value_loss(values, steps.returns).mean()
        self._record(loss, losses, entropy, log_probs - steps.log_probs)
        policy.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(policy.parameters(), agent.max_grad_norm)
        policy.optimizer.step()

    @torch.no_grad()
    def _record(self, loss: Tensor, policy_losses: Tensor, entropy: Tensor, log_ratios: Tensor) -> None:
        """Record scalars of a minibatch by SB3's names; a dump writes their means since the last."""
        self.log.logger.record_mean("train/loss", loss.item())
        self.log.logger.record_mean("train/policy_gradient_loss", policy_losses.mean().item())
        self.log.logger.record_mean("train/entropy_loss", -entropy.mean().item())
        # estimator of Schulman (2020), http://joschu.net/blog/kl-approx.html, as in SB3
        self.log.logger.record_mean("train/approx_kl", (log_ratios.exp() - 1.0 - log_ratios).mean().item())

    def _evaluate(self, steps: EpisodeSteps) -> tuple[Tensor, Tensor, Tensor | None]:
        """Evaluate log-probabilities, entropy and values of the steps under the current policy."""
        if self._agent.advantage.uses_critic:
            values, log_probs, entropy = self.policy.evaluate_actions(steps.observations, steps.actions)
            return log_probs, -log_probs if entropy is None else entropy, values.flatten()
        distribution = self.policy.get_distribution(steps.observations)
        log_probs, entropy = distribution.log_prob(steps.actions), distribution.entropy()
        return log_probs, -log_probs if entropy is None else entropy, None


def clipped_policy_loss(
    log_probs: Tensor, old_log_probs: Tensor, advantages: Tensor, *, clip_range: float, clip_range_high: float
) -> Tensor:
    """Clipped surrogate loss of each step.

    The probability ratio is clipped to [1 - clip_range, 1 + clip_range_high] where leaving it would lower the loss.

    Source: Schulman et al. (2017); Yu et al. (2025), DAPO, for a higher upper limit.
    """
    ratio = (log_probs - old_log_probs).exp()
    clipped = ratio.clamp(1.0 - clip_range, 1.0 + clip_range_high)
    return torch.maximum(-advantages * ratio, -advantages * clipped)


def value_loss(values: Tensor, returns: Tensor) -> Tensor:
    """Squared error of the critic at each step, without NeMo-RL's factor 1/2, which `vf_coef` holds as in SB3."""
    return (returns - values).square()
