"""Training of DeepTrader's two units: names pathwise, the drawn share of long positions by REINFORCE."""

from typing import Any

import torch
from torch import Tensor
from typing_extensions import override

from nvtrader_pipelines.policies.networks.deeptrader_network import DeepTraderExtractor
from nvtrader_pipelines.policies.pathwise.training import PathwiseTraining


class DrawnShareTraining(PathwiseTraining):
    """Training whose policy draws a share of long positions at every decision of a window."""

    n_compared = 2  # windows, the fewest whose rewards can be standardized

    def __init__(self, *arguments: Any, market_reward: str) -> None:
        super().__init__(*arguments)
        self._market_reward = market_reward

    @override
    def _act(self, observation: Tensor) -> Tensor:
        extractor = self.policy.mlp_extractor
        assert isinstance(extractor, DeepTraderExtractor)
        actions, log_prob = extractor.draw(observation)
        self._draws.append(log_prob)  # that of the opening has no gradient
        return actions

    @override
    def _objective(self, log_growth: Tensor, turnover: Tensor) -> Tensor:
        """Mean annual objective of the windows, less the penalties, and REINFORCE's surrogate of the market unit."""
        log_prob = torch.stack(self._draws).sum(dim=0)
        rewards = window_rewards(log_growth.detach(), self._market_reward)
        return super()._objective(log_growth, turnover) + reinforce(log_prob, rewards)


def reinforce(log_prob: Tensor, rewards: Tensor) -> Tensor:
    """Surrogate whose gradient is REINFORCE's: mean of log-probabilities (n,) times standardized rewards (n,).

    Source: Williams (1992).
    """
    advantages = (rewards - rewards.mean()) / (rewards.std(correction=0) + 1e-8)
    return (advantages * log_prob).mean()


def window_rewards(log_growth: Tensor, kind: str) -> Tensor:
    """Rewards (n,) of windows, given the log growth (n, S) of their sessions: log return, or less maximum drawdown."""
    wealth = torch.nn.functional.pad(log_growth.cumsum(dim=1), (1, 0))
    return wealth[:, -1] if kind == "return" else (wealth - wealth.cummax(dim=1).values).amin(dim=1)
