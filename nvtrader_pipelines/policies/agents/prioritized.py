"""Stable-Baselines3's updates, with weights for steps of prioritized replay and priorities from their errors."""

from collections.abc import Callable
from typing import cast

import numpy as np
import torch
from sb3_contrib import QRDQN
from sb3_contrib.common.utils import quantile_huber_loss
from stable_baselines3 import DDPG, DQN, TD3
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm
from stable_baselines3.common.type_aliases import ReplayBufferSamples
from stable_baselines3.common.utils import polyak_update
from torch import Tensor
from torch.nn import functional
from typing_extensions import override

from nvtrader_pipelines.policies.replay.priority_buffer import PriorityBuffer


def _sample(model: OffPolicyAlgorithm, batch_size: int) -> tuple[PriorityBuffer, ReplayBufferSamples, Tensor]:
    """Draw steps and return them with their buffer and their weights (B, 1)."""
    buffer = cast("PriorityBuffer", model.replay_buffer)
    samples = buffer.sample(batch_size)
    return buffer, samples, buffer.weights(model._current_progress_remaining)  # noqa: SLF001 - as SB3's schedules


class PrioritizedTd3(TD3):
    """SB3's TD3 on a `PriorityBuffer`: a step's error is the largest of its critics, as in Fujimoto et al. (2020)."""

    @override
    def train(self, gradient_steps: int, batch_size: int = 100) -> None:
        """Update critics, and every `policy_delay` times the actor and the targets."""
        self.policy.set_training_mode(True)
        self._update_learning_rate([self.actor.optimizer, self.critic.optimizer])
        losses: dict[str, list[float]] = {"critic_loss": [], "actor_loss": []}
        for _ in range(gradient_steps):
            self._n_updates += 1
            buffer, samples, weights = _sample(self, batch_size)
            target = self._target(samples)
            values = self.critic(samples.observations, samples.actions)
            loss = torch.stack([(weights * (value - target).square()).mean() for value in values]).sum()
            losses["critic_loss"].append(loss.item())
            self.critic.optimizer.zero_grad()
            loss.backward()
            self.critic.optimizer.step()
            buffer.update_priorities((torch.cat(values, dim=1) - target).abs().amax(dim=1))
            if self._n_updates % self.policy_delay == 0:
                losses["actor_loss"].append(self._update_actor(samples.observations))
        self.logger.record("train/n_updates", self._n_updates, exclude="tensorboard")
        for name, values in losses.items():
            if values:
                self.logger.record(f"train/{name}", np.mean(values))

    @torch.no_grad()
    def _target(self, samples: ReplayBufferSamples) -> Tensor:
        noise = samples.actions.clone().normal_(0, self.target_policy_noise)
        noise = noise.clamp(-self.target_noise_clip, self.target_noise_clip)
        actions = (self.actor_target(samples.next_observations) + noise).clamp(-1, 1)
        value = torch.cat(self.critic_target(samples.next_observations, actions), dim=1).amin(dim=1, keepdim=True)
        return samples.rewards + (1 - samples.dones) * self.gamma * value

    def _update_actor(self, observations: Tensor) -> float:
        loss = -self.critic.q1_forward(observations, self.actor(observations)).mean()
        self.actor.optimizer.zero_grad()
        loss.backward()
        self.actor.optimizer.step()
        polyak_update(self.critic.parameters(), self.critic_target.parameters(), self.tau)
        polyak_update(self.actor.parameters(), self.actor_target.parameters(), self.tau)
        polyak_update(self.critic_batch_norm_stats, self.critic_batch_norm_stats_target, 1.0)
        polyak_update(self.actor_batch_norm_stats, self.actor_batch_norm_stats_target, 1.0)
        return loss.item()


class PrioritizedDdpg(PrioritizedTd3, DDPG):
    """SB3's DDPG on a `PriorityBuffer`."""


class PrioritizedDqn(DQN):
    """SB3's DQN on a `PriorityBuffer`."""

    @override
    def train(self, gradient_steps: int, batch_size: int = 100) -> None:
        """Update the network once per sample of `batch_size` steps."""
        _train(self, gradient_steps, batch_size, self._losses)

    def _losses(self, samples: ReplayBufferSamples) -> tuple[Tensor, Tensor]:
        with torch.no_grad():
            best = self.q_net_target(samples.next_observations).amax(dim=1, keepdim=True)
            target = samples.rewards + (1 - samples.dones) * self.gamma * best
        values = self.q_net(samples.observations).gather(dim=1, index=samples.actions.long())
        return functional.smooth_l1_loss(values, target, reduction="none"), values - target


class PrioritizedQrDqn(QRDQN):
    """sb3-contrib's QR-DQN on a `PriorityBuffer`: a step's error is that of the quantiles' mean."""

    @override
    def train(self, gradient_steps: int, batch_size: int = 100) -> None:
        """Update the network once per sample of `batch_size` steps."""
        _train(self, gradient_steps, batch_size, self._losses)

    def _losses(self, samples: ReplayBufferSamples) -> tuple[Tensor, Tensor]:
        with torch.no_grad():
            after = self.quantile_net_target(samples.next_observations)  # (B, Q, A)
            best = _of_actions(after, after.mean(dim=1).argmax(dim=1, keepdim=True))
            target = samples.rewards + (1 - samples.dones) * self.gamma * best  # (B, Q)
        quantiles = _of_actions(self.quantile_net(samples.observations), samples.actions.long())
        losses = torch.vmap(lambda now, goal: quantile_huber_loss(now[None], goal[None]))(quantiles, target)
        return losses[:, None], quantiles.mean(dim=1) - target.mean(dim=1)


def _of_actions(quantiles: Tensor, actions: Tensor) -> Tensor:
    """Quantiles (B, Q) of the chosen actions (B, 1)."""
    return quantiles.gather(dim=2, index=actions[:, None].expand(-1, quantiles.shape[1], 1))[:, :, 0]


def _train(
    model: DQN | QRDQN,
    n_updates: int,
    batch_size: int,
    losses_of: Callable[[ReplayBufferSamples], tuple[Tensor, Tensor]],
) -> None:
    """Update a network of values; `losses_of` gives the losses (B, 1) of samples and their errors."""
    model.policy.set_training_mode(True)
    model._update_learning_rate(model.policy.optimizer)  # noqa: SLF001 - as in SB3's own update
    logged = []
    for _ in range(n_updates):
        buffer, samples, weights = _sample(model, batch_size)
        losses, errors = losses_of(samples)
        loss = (weights * losses).mean()
        model.policy.optimizer.zero_grad()
        loss.backward()
        if model.max_grad_norm is not None:
            torch.nn.utils.clip_grad_norm_(model.policy.parameters(), model.max_grad_norm)
        model.policy.optimizer.step()
        buffer.update_priorities(errors)
        logged.append(loss.item())
    model._n_updates += n_updates  # noqa: SLF001
    model.logger.record("train/n_updates", model._n_updates, exclude="tensorboard")  # noqa: SLF001
    model.logger.record("train/loss", np.mean(logged))
