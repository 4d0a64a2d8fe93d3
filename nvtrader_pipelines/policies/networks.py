"""Networks of actor and critic: a plain MLP, and one small network shared by all names."""

from typing import Annotated, Any, Literal

import torch
from pydantic import Field, PositiveInt
from stable_baselines3.common.policies import ActorCriticPolicy
from stable_baselines3.common.type_aliases import Schedule
from torch import Tensor, nn

from nvtrader_pipelines.components import Component
from nvtrader_pipelines.envs.observations.per_asset import ASSET_COLUMNS, CONTEXT_COLUMNS

OPTIMIZER = {"fused": True, "eps": 1e-5}  # fused Adam is 15-20 % faster on small networks


class MlpNetwork(Component):
    """Separate actor and critic MLPs with tanh, on any observation."""

    kind: Literal["mlp"] = "mlp"
    hidden: tuple[PositiveInt, ...] = (64, 64)

    def policy(self, log_std_init: float) -> tuple[type[ActorCriticPolicy], dict[str, Any]]:
        """The SB3 policy class and its keyword arguments."""
        layers = list(self.hidden)
        return ActorCriticPolicy, {
            "net_arch": {"pi": layers, "vf": layers},
            "log_std_init": log_std_init,
            "optimizer_kwargs": OPTIMIZER,
        }


class SharedAssetNetwork(Component):
    """One small network scores every name from its own columns and the context; needs the per-asset observation.

    Scores are centred across names, and the last layers start near zero, so a residual policy starts at its anchor.
    """

    kind: Literal["shared_asset"] = "shared_asset"
    asset_hidden: tuple[PositiveInt, PositiveInt] = (16, 8)
    context_hidden: PositiveInt = 16
    critic_hidden: PositiveInt = 32

    def policy(self, log_std_init: float) -> tuple[type[ActorCriticPolicy], dict[str, Any]]:
        """The SB3 policy class and its keyword arguments."""
        return SharedAssetPolicy, {
            "network": self,
            "log_std_init": log_std_init,
            "ortho_init": False,
            "optimizer_kwargs": OPTIMIZER,
        }


class SharedAssetExtractor(nn.Module):
    """Observation (n, N*14 + 7) to action means (n, N+1) and the critic's hidden layer (n, 32)."""

    def __init__(self, n_symbols: int, network: SharedAssetNetwork) -> None:
        super().__init__()
        first, second = network.asset_hidden
        self.n_symbols = n_symbols
        self.asset_in = nn.Linear(ASSET_COLUMNS, first)
        self.context_in = nn.Linear(CONTEXT_COLUMNS, first, bias=False)
        self.asset_hidden = nn.Linear(first, second)
        self.asset_out = nn.Linear(second, 1)
        self.exposure = nn.Sequential(
            nn.Linear(CONTEXT_COLUMNS, network.context_hidden),
            nn.Tanh(),
            nn.Linear(network.context_hidden, 1),
        )
        self.critic = nn.Sequential(nn.Linear(ASSET_COLUMNS + CONTEXT_COLUMNS, network.critic_hidden), nn.Tanh())
        self.latent_dim_pi = n_symbols + 1
        self.latent_dim_vf = network.critic_hidden
        with torch.no_grad():
            for layer in (self.asset_out, self.exposure[2]):
                assert isinstance(layer, nn.Linear)
                layer.weight.mul_(0.1)
                layer.bias.zero_()

    def _split(self, observation: Tensor) -> tuple[Tensor, Tensor]:
        assets = observation[:, :-CONTEXT_COLUMNS].reshape(-1, self.n_symbols, ASSET_COLUMNS)
        return assets, observation[:, -CONTEXT_COLUMNS:]

    def forward(self, observation: Tensor) -> tuple[Tensor, Tensor]:
        """Actor and critic outputs."""
        return self.forward_actor(observation), self.forward_critic(observation)

    def forward_actor(self, observation: Tensor) -> Tensor:
        """Action means (n, N+1)."""
        assets, context = self._split(observation)
        hidden = torch.tanh(self.asset_in(assets) + self.context_in(context)[:, None, :])
        scores = self.asset_out(torch.tanh(self.asset_hidden(hidden)))[:, :, 0]
        return torch.cat([scores - scores.mean(dim=1, keepdim=True), self.exposure(context)], dim=1)

    def forward_critic(self, observation: Tensor) -> Tensor:
        """The critic's hidden layer (n, critic_hidden)."""
        assets, context = self._split(observation)
        return self.critic(torch.cat([assets.mean(dim=1), context], dim=1))


class SharedAssetPolicy(ActorCriticPolicy):
    """SB3's actor-critic with the shared network in place of its MLPs."""

    def __init__(self, *args: Any, network: SharedAssetNetwork, **kwargs: Any) -> None:
        self._network = network
        super().__init__(*args, **kwargs)

    def _build_mlp_extractor(self) -> None:
        columns = self.features_dim - CONTEXT_COLUMNS
        if columns % ASSET_COLUMNS:
            raise ValueError(
                f"the shared network needs the per_asset observation ({ASSET_COLUMNS} columns a name and "
                f"{CONTEXT_COLUMNS} of context), but the observation has {self.features_dim} columns"
            )
        # SB3 types this attribute as its own MLP; the shared network has the same four members it uses
        self.mlp_extractor = SharedAssetExtractor(columns // ASSET_COLUMNS, self._network)  # pyright: ignore[reportAttributeAccessIssue]

    def _build(self, lr_schedule: Schedule) -> None:
        super()._build(lr_schedule)
        self.action_net = nn.Identity()  # the extractor already gives the means
        self.optimizer = self.optimizer_class(self.parameters(), **{"lr": lr_schedule(1), **self.optimizer_kwargs})


Network = Annotated[MlpNetwork | SharedAssetNetwork, Field(discriminator="kind")]
