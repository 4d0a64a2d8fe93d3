"""DeepTrader's policy: the asset unit chooses names, the market unit the share of long positions."""

from typing import cast

import torch
from gymnasium import spaces
from torch import Tensor, nn
from torch.distributions import Normal
from typing_extensions import override

from nvtrader_pipelines.envs.observations import ObservationLayout
from nvtrader_pipelines.policies.networks.eiie_network import WindowScoresExtractor
from nvtrader_pipelines.policies.networks.gaussian_policy import NameScoresPolicy
from nvtrader_pipelines.policies.networks.sagcn_network import AssetUnit

MAX_SHARE = 0.99  # of long positions
MIN_DEVIATION = 0.01  # of a drawn share
WITHIN_BOUND = 0.999  # highest logit over the bound: at the bound itself, a rounded one would have no gradient


class MarketScorer(nn.Module):
    """LSTM over the names' mean window, with attention over its states."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.lstm = nn.LSTM(1, hidden, batch_first=True)
        self.attention = nn.Sequential(nn.Linear(2 * hidden, hidden), nn.Tanh(), nn.Linear(hidden, 1, bias=False))
        self.hidden, self.share = nn.Linear(hidden, hidden), nn.Linear(hidden, 2)
        with torch.no_grad():
            self.share.bias.copy_(torch.tensor([0.5, -1.0]))  # as much long as short, deviation 0.3

    def forward(self, market: Tensor) -> Normal:
        """Return the distribution of shares (n,) before they are clipped, given mean windows (n, lookback)."""
        states, _ = self.lstm(market[..., None])
        last = states[:, -1:].expand_as(states)
        attention = self.attention(torch.cat([states, last], dim=2)).softmax(dim=1)
        mean, deviation = self.share(self.hidden((attention * states).sum(dim=1)).relu()).unbind(dim=1)
        return Normal(mean, nn.functional.softplus(deviation) + MIN_DEVIATION)


class DeepTraderExtractor(WindowScoresExtractor):
    """Network from observations (n, length) to logits of `long_short` (n, 2N) or `simplex` (n, N+1)."""

    def __init__(
        self,
        layout: ObservationLayout,
        *,
        n_actions: int,
        bound: float,
        n_selected: int | None,
        market_hidden: int,
        critic_hidden: int,
        **sizes: float,
    ) -> None:
        super().__init__(layout)
        self.assets = AssetUnit(layout, **sizes)  # pyright: ignore[reportArgumentType] - the backbone's fields
        self.market = MarketScorer(market_hidden)
        self.add_critic(critic_hidden)
        n_symbols = layout.n_symbols
        self._has_shorts, self._bound = n_actions == 2 * n_symbols, bound
        self._n_selected = min(n_selected or (n_symbols + 1) // 2, n_symbols)

    @override
    def forward_actor(self, observation: Tensor) -> Tensor:
        """Return the logits of the mean share."""
        return self._logits(observation, self.share(observation).mean)

    def share(self, observation: Tensor) -> Normal:
        """Return the distribution of the shares (n,) of long positions, before they are clipped."""
        return self.market(self.returns(observation).mean(dim=2))

    def draw(self, observation: Tensor) -> tuple[Tensor, Tensor]:
        """Return the logits of shares drawn with torch's generator, and the draws' log-probabilities (n,)."""
        shares = self.share(observation)
        drawn = shares.sample()
        return self._logits(observation, drawn), shares.log_prob(drawn)

    def _logits(self, observation: Tensor, share: Tensor) -> Tensor:
        """Log weights, shifted up to the bound: names not selected have 0 but for exp(-2 bound) of the largest."""
        scores = self.assets(self.returns(observation)).sigmoid()
        share = share.detach().clamp(0.0, MAX_SHARE)[:, None]
        shorts = self._log_weights(-scores) if self._has_shorts else scores.new_zeros(len(scores), 1)
        logs = torch.cat([share.log() + self._log_weights(scores), (1.0 - share).log() + shorts], dim=1)
        highest = logs.detach().amax(dim=1, keepdim=True)
        return (logs - highest + WITHIN_BOUND * self._bound).clamp(min=-self._bound)

    def _log_weights(self, scores: Tensor) -> Tensor:
        """Log softmax (n, N) of the highest scores, minus infinity elsewhere."""
        lowest = scores.detach().topk(self._n_selected, dim=1).values[:, -1:]
        return scores.masked_fill(scores < lowest, -torch.inf).log_softmax(dim=1)


class DeepTraderPolicy(NameScoresPolicy):
    """SB3's actor-critic with DeepTrader's two units instead of its MLPs."""

    @override
    def _build_mlp_extractor(self) -> None:
        # SB3 types this attribute as its own MLP; this network has the four members that it uses
        box = cast("spaces.Box", self.action_space)
        actions = {"n_actions": box.shape[0], "bound": float(box.high[0])}
        self.mlp_extractor = DeepTraderExtractor(self._layout, **actions, **self._sizes)  # pyright: ignore[reportAttributeAccessIssue]
