"""Q-network of an agent that trades a book, and the DQN that learns from a program's values, too."""

from typing import Any

import torch
from gymnasium import spaces
from stable_baselines3 import DQN
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from stable_baselines3.common.type_aliases import PyTorchObs
from stable_baselines3.dqn.policies import DQNPolicy, QNetwork
from torch import Tensor, nn
from torch.nn import functional
from typing_extensions import override

PUNISHMENT = 1e12  # taken from the values of choices out of reach


class HftExtractor(BaseFeaturesExtractor):
    """Hidden layer over the book beside an embedding of the position, (n, 2 * hidden)."""

    def __init__(self, observation_space: spaces.Box, hidden: int, n_choices: int, n_seen: int) -> None:
        super().__init__(observation_space, 2 * hidden)
        self.n_features, self.n_choices = n_seen - n_choices - 1, n_choices
        self.book = nn.Linear(self.n_features, hidden)
        self.position = nn.Embedding(n_choices, hidden)

    def forward(self, observations: Tensor) -> Tensor:
        """Return both parts; the mask is left to the network of values."""
        held = observations[:, self.n_features + self.n_choices] * (self.n_choices - 1)
        book = functional.relu(self.book(observations[:, : self.n_features]))
        return torch.cat([book, self.position(held.round().long())], dim=1)


class MaskedQNetwork(QNetwork):
    """SB3's network of values, in which choices out of reach are punished."""

    @override
    def forward(self, obs: PyTorchObs) -> Tensor:
        """Return the values of the choices, (n, choices)."""
        assert isinstance(obs, Tensor)
        return super().forward(obs) - PUNISHMENT * (1.0 - self.mask(obs))

    def mask(self, observations: Tensor) -> Tensor:
        """Whether each choice is in reach, 1 or 0, (n, choices)."""
        extractor = self.features_extractor
        assert isinstance(extractor, HftExtractor)
        return observations[:, extractor.n_features : extractor.n_features + extractor.n_choices]


class HftQNetPolicy(DQNPolicy):
    """SB3's policy with the network of `MaskedQNetwork`."""

    @override
    def make_q_net(self) -> QNetwork:
        settings: dict[str, Any] = self._update_features_extractor(self.net_args, features_extractor=None)
        return MaskedQNetwork(**settings).to(self.device)


class DistilledDQN(DQN):
    """Double DQN whose loss has the divergence of its choices from those of a program.

    Observations end with the program's values of the choices. A choice out of reach counts as the nearest in reach, as
    it was carried out.
    """

    distillation = 1.0  # weight of the divergence

    @override
    def train(self, gradient_steps: int, batch_size: int = 100) -> None:
        """Update the network on replayed steps."""
        self.policy.set_training_mode(True)
        self._update_learning_rate(self.policy.optimizer)
        q_net, target_net = self.policy.q_net, self.policy.q_net_target
        assert isinstance(q_net, MaskedQNetwork)
        assert self.replay_buffer is not None
        for _ in range(gradient_steps):
            steps = self.replay_buffer.sample(batch_size)
            with torch.no_grad():
                best = q_net(steps.next_observations).argmax(dim=1, keepdim=True)
                next_values = target_net(steps.next_observations).gather(1, best)
                targets = steps.rewards + (1.0 - steps.dones) * self.gamma * next_values
            values, taken = q_net(steps.observations), nearest_choices(steps.actions, q_net.mask(steps.observations))
            loss = functional.mse_loss(values.gather(1, taken), targets)
            loss = loss + self.distillation * divergence(values, steps.observations[:, -values.shape[1] :])
            self.policy.optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(self.policy.parameters(), self.max_grad_norm)
            self.policy.optimizer.step()
        self._n_updates += gradient_steps


def nearest_choices(choices: Tensor, mask: Tensor) -> Tensor:
    """Return choices (n, 1) within the first and the last in reach by a mask (n, choices)."""
    lowest = mask.argmax(dim=1, keepdim=True)
    highest = mask.shape[1] - 1 - mask.flip(1).argmax(dim=1, keepdim=True)
    return choices.long().clamp(lowest, highest)


def divergence(values: Tensor, program: Tensor) -> Tensor:
    """Mean Kullback-Leibler divergence of the softmax of values (n, choices) from that of the program's."""
    own, taught = functional.log_softmax(values, dim=1), functional.log_softmax(program, dim=1)
    return (own.exp() * (own - taught)).sum(dim=1).mean()
