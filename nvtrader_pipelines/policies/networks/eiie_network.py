"""Network of convolutions that all names share, and its policy."""

from abc import abstractmethod

import torch
from torch import Tensor, nn
from typing_extensions import override

from nvtrader_pipelines.envs.observations import ObservationLayout
from nvtrader_pipelines.policies.networks.gaussian_policy import NameScoresPolicy

KERNEL = 3  # sessions of the first convolution
N_OTHERS = 2  # account columns after the held weights of names: cash and drawdown


class WindowScoresExtractor(nn.Module):
    """Network from observations (n, length) to action means (n, A) and the critic's hidden layer.

    An observation begins with the window and ends with the held weights, cash last, and the drawdown.
    """

    def __init__(self, layout: ObservationLayout) -> None:
        super().__init__()
        self._shape = (layout.lookback, layout.n_symbols)
        self._size = layout.lookback * layout.n_symbols
        self.latent_dim_pi = layout.n_symbols + 1

    def add_critic(self, hidden: int) -> None:
        """Add the critic's layer, after the actor's."""
        self.critic = nn.Sequential(nn.Linear(self._shape[0] + N_OTHERS, hidden), nn.Tanh())
        self.latent_dim_vf = hidden

    def returns(self, observation: Tensor) -> Tensor:
        """Return the windows (n, lookback, N), oldest first."""
        return observation[:, : self._size].unflatten(1, self._shape)

    def forward(self, observation: Tensor) -> tuple[Tensor, Tensor]:
        """Return actor and critic outputs."""
        return self.forward_actor(observation), self.forward_critic(observation)

    @abstractmethod
    def forward_actor(self, observation: Tensor) -> Tensor:
        """Return action means (n, A)."""

    def forward_critic(self, observation: Tensor) -> Tensor:
        """Return the critic's hidden layer (n, critic_hidden), of the names' mean window, cash and drawdown."""
        pooled = self.returns(observation).mean(dim=2)
        return self.critic(torch.cat([pooled, observation[:, -N_OTHERS:]], dim=1))


class EiieExtractor(WindowScoresExtractor):
    """Convolutions that all names share, and a learned score of cash."""

    def __init__(self, layout: ObservationLayout, *, maps: int, cash_bias: float, critic_hidden: int) -> None:
        super().__init__(layout)
        # names are rows of the batch: four times faster than convolutions of 1xK over an image of names and sessions
        self.sessions = nn.Conv1d(1, maps, KERNEL)
        self.window = nn.Linear(maps * (layout.lookback - KERNEL + 1), 1)
        self.score = nn.Linear(2, 1)  # of the window's map and the held weight
        self.cash_bias = nn.Parameter(torch.tensor([cash_bias]))
        self.add_critic(critic_hidden)

    @override
    def forward_actor(self, observation: Tensor) -> Tensor:
        """Return action means (n, N+1): scores of names, and of cash."""
        rows = self.returns(observation).transpose(1, 2).flatten(0, 1)[:, None]  # (n * N, 1, lookback)
        maps = self.window(torch.relu(self.sessions(rows)).flatten(1)).view(-1, self._shape[1])
        held = observation[:, -N_OTHERS - self._shape[1] : -N_OTHERS]
        scores = self.score(torch.stack([maps, held], dim=2))[:, :, 0]
        return torch.cat([scores, self.cash_bias.expand(len(scores), 1)], dim=1)


class EiiePolicy(NameScoresPolicy):
    """SB3's actor-critic with the shared convolutions instead of its MLPs."""

    @override
    def _build_mlp_extractor(self) -> None:
        # SB3 types this attribute as its own MLP; this network has the four members that it uses
        self.mlp_extractor = EiieExtractor(self._layout, **self._sizes)  # pyright: ignore[reportAttributeAccessIssue]
