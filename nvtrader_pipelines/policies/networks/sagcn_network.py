"""DeepTrader's network of names: temporal convolutions, graph convolutions and spatial attention."""

import torch
from torch import Tensor, nn
from typing_extensions import override

from nvtrader_pipelines.envs.observations import ObservationLayout
from nvtrader_pipelines.policies.networks.eiie_network import WindowScoresExtractor
from nvtrader_pipelines.policies.networks.gaussian_policy import NameScoresPolicy


class GraphLayer(nn.Module):
    """Temporal and graph convolution and spatial attention, with a residual connection and a norm."""

    def __init__(self, channels: int, n_symbols: int, n_sessions: int, dilation: int, dropout: float) -> None:
        super().__init__()
        self.temporal = nn.Linear(2 * channels, channels)
        self.name = nn.Linear(channels, channels)
        self.neighbors = nn.Linear(channels, 4 * channels, bias=False)  # of two orders of two graphs
        self.by_session = nn.Parameter(torch.randn(n_sessions) / n_sessions**0.5)  # W1
        self.channel_sessions = nn.Parameter(torch.randn(channels, n_sessions) / channels**0.5)  # W2
        self.by_channel = nn.Parameter(torch.randn(channels) / channels**0.5)  # W3
        self.relations = nn.Parameter(torch.randn(n_symbols, n_symbols) / n_symbols**0.5)  # V
        self.dropout, self.norm = nn.Dropout(dropout), nn.LayerNorm(channels)
        self._dilation = dilation

    def forward(self, maps: Tensor, orders: Tensor) -> Tensor:
        """Pass maps (n, L, N, channels) on to `dilation` sessions fewer, given the orders of the graphs (N, 4N)."""
        later = maps[:, self._dilation :]
        convolved = self.dropout(self.temporal(torch.cat([maps[:, : -self._dilation], later], dim=3)).relu())
        spread = orders @ self.neighbors(convolved).unflatten(3, (4, -1)).flatten(2, 3)
        convolved = self.dropout(self.name(convolved) + spread)
        names = torch.einsum("nlic,l->nic", convolved, self.by_session) @ self.channel_sessions
        similarity = names @ (convolved @ self.by_channel)
        attention = (self.relations @ similarity.relu()).softmax(dim=2)
        return self.norm(attention[:, None] @ convolved + later)


class AssetUnit(nn.Module):
    """Scores of names from their windows of returns, the correlations of the training and a learned graph."""

    correlation: Tensor  # (N, N) of the returns of the training windows; a buffer, so that a policy stores it

    def __init__(self, layout: ObservationLayout, *, channels: int, n_layers: int, dropout: float) -> None:
        super().__init__()
        n_symbols, self._n_sessions = layout.n_symbols, 2**n_layers
        self.start = nn.Linear(1, channels)
        self.layers = nn.ModuleList(
            GraphLayer(channels, n_symbols, self._n_sessions + 1 - 2 ** (i + 1), 2**i, dropout) for i in range(n_layers)
        )
        self.embedding = nn.Parameter(torch.randn(n_symbols))  # e, one number a name
        self.score = nn.Linear(channels, 1)
        self.register_buffer("correlation", torch.eye(n_symbols))

    def forward(self, returns: Tensor) -> Tensor:
        """Return scores (n, N) of windows (n, lookback, N): of the last 2^n_layers sessions, after zeros if fewer."""
        recent = returns[:, -self._n_sessions :]
        maps = self.start(nn.functional.pad(recent, (0, 0, self._n_sessions - recent.shape[1], 0))[..., None])
        orders = graph_orders(self.graphs())
        for layer in self.layers:
            maps = layer(maps, orders)
        return self.score(maps[:, -1])[..., 0]

    def graphs(self) -> Tensor:
        """Return both adjacencies (2, N, N): correlations, over their row's sum of sizes, and the learned softmax."""
        learned = torch.outer(self.embedding, self.embedding).relu().softmax(dim=1)
        return torch.stack([self.correlation / self.correlation.abs().sum(dim=1, keepdim=True), learned])

    def fit_graph(self, returns: Tensor) -> None:
        """Store the correlations of returns (T, N), over the sessions that two names share; NaN without a return."""
        has_return = (~returns.isnan()).double()
        n_returns = has_return.sum(dim=0).clamp(min=1.0)
        centered = torch.where(returns.isnan(), 0.0, returns - returns.nansum(dim=0) / n_returns)
        scaled = centered / (centered.square().sum(dim=0) / n_returns).sqrt().clamp(min=1e-12)
        shared = (scaled.T @ scaled) / (has_return.T @ has_return).clamp(min=1.0)
        self.correlation.copy_(shared.clamp(-1.0, 1.0).fill_diagonal_(1.0))


class SagcnExtractor(WindowScoresExtractor):
    """Network from observations (n, length) to action means (n, N+1) and the critic's hidden layer."""

    def __init__(self, layout: ObservationLayout, *, critic_hidden: int, **sizes: float) -> None:
        super().__init__(layout)
        self.assets = AssetUnit(layout, **sizes)  # pyright: ignore[reportArgumentType] - the backbone's fields
        self.last = nn.Parameter(torch.zeros(1))  # score of cash, or tilt of the exposure
        self.add_critic(critic_hidden)

    @override
    def forward_actor(self, observation: Tensor) -> Tensor:
        scores = self.assets(self.returns(observation))
        return torch.cat([scores, self.last.expand(len(scores), 1)], dim=1)


class SagcnPolicy(NameScoresPolicy):
    """SB3's actor-critic with the network of names instead of its MLPs."""

    @override
    def _build_mlp_extractor(self) -> None:
        # SB3 types this attribute as its own MLP; this network has the four members that it uses
        self.mlp_extractor = SagcnExtractor(self._layout, **self._sizes)  # pyright: ignore[reportAttributeAccessIssue]


def graph_orders(graphs: Tensor) -> Tensor:
    """First and second order of graphs (2, N, N), as the columns of each neighbor: (N, 4N)."""
    return torch.stack([graphs[0], graphs[0] @ graphs[0], graphs[1], graphs[1] @ graphs[1]], dim=2).flatten(1)
