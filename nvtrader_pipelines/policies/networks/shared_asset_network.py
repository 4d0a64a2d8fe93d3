"""Network that all names share, and its policy."""

import torch
from torch import Tensor, nn

from nvtrader_pipelines.envs.observations.per_asset_builder import ASSET_COLUMNS, CONTEXT_COLUMNS
from nvtrader_pipelines.policies.networks.gaussian_policy import NameScoresPolicy


class SharedAssetExtractor(nn.Module):
    """Network from observations (n, N*14 + 7) to action means (n, N+1) and the critic's hidden layer."""

    def __init__(
        self, n_symbols: int, *, asset_hidden: tuple[int, int], context_hidden: int, critic_hidden: int
    ) -> None:
        super().__init__()
        first, second = asset_hidden
        self.n_symbols = n_symbols
        self.asset_in = nn.Linear(ASSET_COLUMNS, first)
        self.context_in = nn.Linear(CONTEXT_COLUMNS, first, bias=False)
        self.asset_hidden = nn.Linear(first, second)
        self.asset_out = nn.Linear(second, 1)
        self.exposure = nn.Sequential(
            nn.Linear(CONTEXT_COLUMNS, context_hidden), nn.Tanh(), nn.Linear(context_hidden, 1)
        )
        self.critic = nn.Sequential(nn.Linear(ASSET_COLUMNS + CONTEXT_COLUMNS, critic_hidden), nn.Tanh())
        self.latent_dim_pi = n_symbols + 1
        self.latent_dim_vf = critic_hidden
        with torch.no_grad():
            for layer in (self.asset_out, self.exposure[2]):
                assert isinstance(layer, nn.Linear)
                layer.weight.mul_(0.1)
                layer.bias.zero_()

    def _split(self, observation: Tensor) -> tuple[Tensor, Tensor]:
        assets = observation[:, :-CONTEXT_COLUMNS].reshape(-1, self.n_symbols, ASSET_COLUMNS)
        return assets, observation[:, -CONTEXT_COLUMNS:]

    def forward(self, observation: Tensor) -> tuple[Tensor, Tensor]:
        """Return actor and critic outputs."""
        return self.forward_actor(observation), self.forward_critic(observation)

    def forward_actor(self, observation: Tensor) -> Tensor:
        """Return action means (n, N+1)."""
        assets, context = self._split(observation)
        hidden = torch.tanh(self.asset_in(assets) + self.context_in(context)[:, None, :])
        scores = self.asset_out(torch.tanh(self.asset_hidden(hidden)))[:, :, 0]
        return torch.cat([scores - scores.mean(dim=1, keepdim=True), self.exposure(context)], dim=1)

    def forward_critic(self, observation: Tensor) -> Tensor:
        """Return the critic's hidden layer (n, critic_hidden)."""
        assets, context = self._split(observation)
        return self.critic(torch.cat([assets.mean(dim=1), context], dim=1))


class SharedAssetPolicy(NameScoresPolicy):
    """SB3's actor-critic with the shared network instead of its MLPs."""

    def _build_mlp_extractor(self) -> None:
        columns = self.features_dim - CONTEXT_COLUMNS
        if columns % ASSET_COLUMNS:
            raise ValueError(
                f"the shared network needs the per_asset observation ({ASSET_COLUMNS} columns per name and "
                f"{CONTEXT_COLUMNS} of context), but the observation has {self.features_dim} columns; choose per_asset"
            )
        # SB3 types this attribute as its own MLP; the shared network has the four members that it uses
        self.mlp_extractor = SharedAssetExtractor(columns // ASSET_COLUMNS, **self._sizes)  # pyright: ignore[reportAttributeAccessIssue]
