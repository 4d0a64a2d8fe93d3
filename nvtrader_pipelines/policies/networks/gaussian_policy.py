"""Stable-Baselines3's Gaussian actor-critic with fewer passes over a minibatch."""

import math
from collections.abc import Mapping
from typing import Any

import torch
from stable_baselines3.common.policies import ActorCriticPolicy
from stable_baselines3.common.torch_layers import MlpExtractor
from stable_baselines3.common.type_aliases import PyTorchObs, Schedule
from torch import Tensor, nn
from typing_extensions import override

from nvtrader_pipelines.envs.observations import ObservationLayout

HALF_LOG_TAU = 0.5 * math.log(2.0 * math.pi)


class JointMlpExtractor(MlpExtractor):
    """SB3's MLPs of actor and critic, with one matrix product for both first layers.

    The first layer dominates for wide observations; the joint product saves 8 % of an update at 702 columns.
    """

    def forward(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Return the last hidden layers of actor and critic."""
        if len(self.policy_net) == 0 or len(self.value_net) == 0:
            return super().forward(features)
        actor, activation, *actor_rest = self.policy_net
        critic, _, *critic_rest = self.value_net  # the activation is the actor's
        assert isinstance(actor, nn.Linear)
        assert isinstance(critic, nn.Linear)
        weight, bias = torch.cat([actor.weight, critic.weight]), torch.cat([actor.bias, critic.bias])
        hidden = activation(nn.functional.linear(features, weight, bias))
        latent_pi, latent_vf = hidden.split([actor.out_features, critic.out_features], dim=1)
        for layer in actor_rest:
            latent_pi = layer(latent_pi)
        for layer in critic_rest:
            latent_vf = layer(latent_vf)
        return latent_pi, latent_vf


class GaussianPolicy(ActorCriticPolicy):
    """SB3's actor-critic for independent normal actions with a state-independent deviation.

    It computes once what `torch.distributions` computes for each action of a minibatch, which saves 4 % of an update
    and 15 % of a small forward pass.
    """

    @override
    def _build_mlp_extractor(self) -> None:
        self.mlp_extractor = JointMlpExtractor(
            self.features_dim, net_arch=self.net_arch, activation_fn=self.activation_fn, device=self.device
        )

    @override
    def forward(self, obs: Tensor, deterministic: bool = False) -> tuple[Tensor, Tensor, Tensor]:
        """Return actions (n, A), values (n, 1) and the actions' log-probabilities (n,)."""
        means, values = self._means_and_values(obs)
        noise = torch.zeros_like(means) if deterministic else torch.randn_like(means)
        return means + noise * self.log_std.exp(), values, self._log_prob(noise)

    @override
    def _predict(self, observation: PyTorchObs, deterministic: bool = False) -> Tensor:
        """Return actions (n, A), without values or log-probabilities."""
        features = self.extract_features(observation, self.features_extractor)
        assert isinstance(features, Tensor)  # actor and critic share the extractor
        means = self.action_net(self.mlp_extractor.forward_actor(features))
        return means if deterministic else means + torch.randn_like(means) * self.log_std.exp()

    @override
    def evaluate_actions(self, obs: PyTorchObs, actions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return values (n, 1), log-probabilities of the actions (n,) and the distributions' entropy (n,)."""
        means, values = self._means_and_values(obs)
        entropy = (self.log_std + 0.5 + HALF_LOG_TAU).sum()
        log_prob = self._log_prob((actions - means) * (-self.log_std).exp())
        return values, log_prob, entropy.expand(len(actions))

    def _means_and_values(self, obs: PyTorchObs) -> tuple[Tensor, Tensor]:
        latent_pi, latent_vf = self.mlp_extractor(self.extract_features(obs, self.features_extractor))
        return self.action_net(latent_pi), self.value_net(latent_vf)

    def _log_prob(self, noise: Tensor) -> Tensor:
        """Log-probability of actions `noise` (n, A) standard deviations from their means."""
        return -0.5 * noise.square().sum(dim=1) - (self.log_std + HALF_LOG_TAU).sum()


class NameScoresPolicy(GaussianPolicy):
    """Actor-critic with one network, of given sizes, that returns the action means themselves."""

    def __init__(self, *args: Any, layout: ObservationLayout, sizes: Mapping[str, Any], **kwargs: Any) -> None:
        self._layout, self._sizes = layout, sizes
        super().__init__(*args, **kwargs)

    @override
    def _build(self, lr_schedule: Schedule) -> None:
        super()._build(lr_schedule)
        self.action_net = nn.Identity()  # the extractor already returns the means
        self.optimizer = self.optimizer_class(self.parameters(), **{"lr": lr_schedule(1), **self.optimizer_kwargs})
