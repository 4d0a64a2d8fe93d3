"""Group relative policy optimization of a Dirichlet policy on the differentiable market."""

from copy import deepcopy

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.distributions import kl_divergence
from torch.optim import AdamW, Muon

from nvtrader_pipelines.envs.simulation import PortfolioSimulation
from nvtrader_pipelines.policies.advantages import Episodes, GrpoAdvantage
from nvtrader_pipelines.policies.agents.grpo_settings import GrpoSettings
from nvtrader_pipelines.policies.fit import TrainingHooks
from nvtrader_pipelines.policies.networks.dirichlet_policy import DirichletPolicy
from nvtrader_pipelines.policies.pathwise.action_maps import with_cash
from nvtrader_pipelines.policies.pathwise.training import WindowTraining


class GrpoTraining(WindowTraining[GrpoSettings]):
    """Training on groups of accounts that draw their weights from a common start.

    Each account plays its window by own draws. The reference is a moving average of the policy. Muon moves matrices
    below the head, AdamW the rest.
    """

    def __init__(self, agent: GrpoSettings, simulation: PortfolioSimulation, seed: int, hooks: TrainingHooks) -> None:
        super().__init__(agent, simulation, seed, hooks)
        assert isinstance(self.policy, DirichletPolicy)
        self._drawing, self._reference = self.policy, deepcopy(self.policy).requires_grad_(requires_grad=False)
        self._reference.set_training_mode(False)
        self._networks["reference"] = self._reference
        self._optimizers = _optimizers(self.policy, agent)
        self._eligible = torch.tensor(simulation.panel.eligible, device=self._device)
        self.n_compared = agent.group_size

    def update(self) -> None:
        """Play groups from common starts, train on them and let the reference follow."""
        super().update()
        with torch.no_grad():
            for averaged, latest in zip(self._reference.parameters(), self.policy.parameters(), strict=True):
                averaged.lerp_(latest, 1.0 - self._agent.ema_decay)

    def _draw_starts(self) -> NDArray[np.int64]:
        return np.repeat(self._generator.choice(self._starts, self._agent.n_groups), self._agent.group_size)

    def _explore(self, t: NDArray[np.int64], weights: Tensor, drawdown: NDArray[np.float64]) -> Tensor:
        """Draw target weights (n, N+1); the share of ineligible names is cash, as by the action `simplex`."""
        observation = self._observe(t, weights, drawdown)
        distribution = self._drawing.distribution(observation)
        drawn = distribution.rsample() if self._agent.pathwise_weight else distribution.sample()
        divergence = kl_divergence(distribution, self._reference.distribution(observation))
        self._draws.append(torch.stack([distribution.log_prob(drawn.detach()), distribution.entropy(), divergence]))
        return with_cash(drawn[:, :-1] * self._eligible[self._sessions(t)])

    def _loss(self, log_growth: Tensor, turnover: Tensor) -> dict[str, Tensor]:  # noqa: ARG002 - costs are in growth
        agent = self._agent
        draws = torch.stack(self._draws)  # (n_steps, 3, n): log-probability, entropy, divergence
        entropy, divergence = draws[:, 1:].mean(dim=(0, 2))
        risk = log_growth.square().mean(dim=1) * self._simulation.panel.calendar.periods_per_year
        objective = self._objectives(log_growth, agent.drawdown_lambda) - agent.risk_aversion * risk
        policy_loss = -(group_advantages(objective.detach(), agent.group_size) * draws[:, 0].sum(dim=0)).mean()
        regularization = agent.kl_coef * divergence - agent.entropy_coef * entropy
        return {
            "loss": policy_loss + regularization - agent.pathwise_weight * objective.mean(),
            "policy_gradient_loss": policy_loss,
            "entropy_loss": -entropy,
            "approx_kl": divergence,
            "objective": objective.mean(),
        }


def group_advantages(outcomes: Tensor, group_size: int) -> Tensor:
    """GRPO's advantages (n,) of outcomes (n,), each group being `group_size` neighbors."""
    rewards, none = outcomes[:, None], torch.zeros_like(outcomes)
    groups = torch.arange(len(outcomes), device=outcomes.device) // group_size
    episodes = Episodes(rewards, torch.ones_like(rewards), groups, values=none[:, None], final_values=none)
    return GrpoAdvantage().estimate(episodes, gamma=0.0).advantages[:, 0]


def _optimizers(policy: DirichletPolicy, agent: GrpoSettings) -> dict[str, torch.optim.Optimizer]:
    """Muon for matrices below the head, and AdamW for the rest; the first is left out if there are none."""
    heads = {*policy.action_net.parameters(), *policy.value_net.parameters()}
    parameters = [parameter for parameter in policy.parameters() if parameter.requires_grad]
    matrices = [parameter for parameter in parameters if parameter.ndim == 2 and parameter not in heads]
    others = [parameter for parameter in parameters if all(parameter is not matrix for matrix in matrices)]
    optimizers: dict[str, torch.optim.Optimizer] = {
        "adamw": AdamW(others, agent.learning_rate, weight_decay=agent.weight_decay, fused=True)
    }
    if matrices:
        scale = agent.muon_learning_rate / agent.learning_rate
        groups = [{"params": matrices, "lr_scale": scale}]
        optimizers["muon"] = Muon(groups, agent.muon_learning_rate, weight_decay=agent.weight_decay)
    return optimizers
