"""Actor-critics of agents that execute orders: a mean and a deviation of the action that both depend on the state."""

import math
from typing import Any

import torch
from gymnasium import spaces
from stable_baselines3.common.distributions import DiagGaussianDistribution, Distribution
from stable_baselines3.common.policies import ActorCriticPolicy
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from stable_baselines3.common.type_aliases import PyTorchObs, Schedule
from torch import Tensor, nn
from torch.distributions import Normal, kl_divergence
from typing_extensions import override

N_OWN = 3  # columns of the order's own state, before the moves
MIN_STD = 0.001  # of an action, as a share of its range


class DualRnnExtractor(BaseFeaturesExtractor):
    """Recurrent network over the moves beside one over the order's own state, (n, 2 * hidden_size)."""

    def __init__(self, observation_space: spaces.Box, hidden_size: int) -> None:
        super().__init__(observation_space, 2 * hidden_size)
        self.moves = nn.GRU(1, hidden_size, batch_first=True)
        self.own = nn.GRU(N_OWN, hidden_size, batch_first=True)

    def forward(self, observations: Tensor) -> Tensor:
        """Return the last hidden states of both."""
        own, moves = observations[:, :N_OWN], observations[:, N_OWN:]
        moves = moves if moves.shape[1] else torch.zeros_like(own[:, :1])  # a recurrent network needs a step
        _, of_moves = self.moves(moves[:, :, None])
        _, of_own = self.own(own[:, None])
        return torch.cat([of_moves[-1], of_own[-1]], dim=1)


class DualHeadPolicy(ActorCriticPolicy):
    """SB3's actor-critic for bounded actions: the mean by a sigmoid, the deviation by a softplus.

    Observations may be longer than the first `n_seen` columns that the policy reads; None: it reads all.
    """

    def __init__(self, *args: Any, initial_std: float, n_seen: int | None = None, **options: Any) -> None:
        self._initial_std, self._n_seen = initial_std, n_seen
        super().__init__(*args, **options)

    @override
    def make_features_extractor(self) -> BaseFeaturesExtractor:
        space = self.observation_space
        assert isinstance(space, spaces.Box)
        n_seen = self._n_seen
        seen = spaces.Box(space.low[:n_seen], space.high[:n_seen])
        extractor = self.features_extractor_class(seen, **self.features_extractor_kwargs)
        extractor.register_forward_pre_hook(lambda _, inputs: (inputs[0][:, :n_seen],))  # SB3 calls it from many places
        return extractor

    @override
    def _build(self, lr_schedule: Schedule) -> None:
        super()._build(lr_schedule)
        del self.log_std  # SB3's does not depend on the state
        space = self.action_space
        assert isinstance(space, spaces.Box)
        self._low, self._width = torch.from_numpy(space.low), torch.from_numpy(space.high - space.low)
        self.std_net = nn.Linear(self.mlp_extractor.latent_dim_pi, len(space.low))
        nn.init.zeros_(self.std_net.weight)
        nn.init.constant_(self.std_net.bias, math.log(math.expm1(self._initial_std - MIN_STD)))
        for parameter in self.action_net.parameters():  # begins in the middle of the range
            nn.init.zeros_(parameter)
        settings: dict[str, Any] = {"lr": lr_schedule(1), **self.optimizer_kwargs}
        self.optimizer = self.optimizer_class(self.parameters(), **settings)

    @override
    def _get_action_dist_from_latent(self, latent_pi: Tensor) -> Distribution:
        means = self._low + self._width * torch.sigmoid(self.action_net(latent_pi))
        deviations = self._width * (nn.functional.softplus(self.std_net(latent_pi)) + MIN_STD)
        assert isinstance(self.action_dist, DiagGaussianDistribution)
        return self.action_dist.proba_distribution(means, deviations.log())


class DistilledPolicy(DualHeadPolicy):
    """Policy that learns from a teacher, too, which reads whole observations.

    What PPO takes for the entropy, and adds to its objective with a weight, is minus the Kullback-Leibler divergence of
    the policy from the teacher.
    """

    teacher: tuple[ActorCriticPolicy, ...] = ()  # in a tuple, so that it is no part of the network

    @override
    def evaluate_actions(self, obs: PyTorchObs, actions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return values (n, 1), log-probabilities (n,) and minus the divergence from the teacher (n,)."""
        latent_pi, latent_vf = self.mlp_extractor(self.extract_features(obs))
        distribution = self._get_action_dist_from_latent(latent_pi)
        with torch.no_grad():
            (teacher,) = self.teacher
            taught = teacher.get_distribution(obs).distribution
        assert isinstance(taught, Normal)
        assert isinstance(distribution.distribution, Normal)
        divergence = kl_divergence(taught, distribution.distribution).sum(dim=1)
        return self.value_net(latent_vf), distribution.log_prob(actions), -divergence
