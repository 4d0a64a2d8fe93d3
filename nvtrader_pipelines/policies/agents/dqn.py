"""Stable-Baselines3's DQN on the native vector environment."""

from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field, PositiveFloat, PositiveInt

from nvtrader_pipelines.envs.observations import ObservationLayout
from nvtrader_pipelines.policies.agents.learner import NetworkOutput
from nvtrader_pipelines.policies.agents.off_policy import OffPolicyLearner

if TYPE_CHECKING:
    from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm
    from torch import Tensor


class QLearner(OffPolicyLearner):
    """Off-policy learner of the value of each choice, explored epsilon-greedily.

    With probability epsilon, all portfolios choose at random in a step. The target network moves after every step of
    all portfolios; SB3's default would move it three times in a training. What a session does not allow is learned as
    what is held instead.
    """

    is_discrete: ClassVar[bool] = True

    exploration_fraction: Annotated[float, Field(gt=0.0, le=1.0)] = (
        0.1  # of the training, in which epsilon falls from 1
    )
    exploration_final_eps: Annotated[float, Field(ge=0.0, le=1.0)] = 0.05
    target_update_interval: PositiveInt = 1  # steps of each portfolio between two moves of the target network
    max_grad_norm: PositiveFloat = 10.0

    def heads(self, layout: ObservationLayout) -> dict[str, Any]:
        """Keyword arguments of the policy."""
        both = super().heads(layout)
        shared = {name: both[name] for name in both if name not in {"n_critics", "share_features_extractor"}}
        return {**shared, "net_arch": both["net_arch"]["qf"]}

    def settings(self, n_actions: int) -> dict[str, Any]:
        """Arguments of the algorithm that affect results; none is left to the library's default."""
        common = {name: value for name, value in super().settings(n_actions).items() if name != "action_noise"}
        return {
            **common,
            "exploration_initial_eps": 1.0,
            "exploration_fraction": self.exploration_fraction,
            "exploration_final_eps": self.exploration_final_eps,
            "target_update_interval": self.target_update_interval * self.n_envs,
            "max_grad_norm": self.max_grad_norm,
        }

    def act(self, network: Any, observation: "Tensor", state: Any, *, with_estimates: bool = True) -> NetworkOutput:
        """Return the value of each choice, and the best; which may be held is a matter of the market."""
        scores = self.choice_values(network, observation).numpy()[0]
        return NetworkOutput(scores, float(scores.max()) if with_estimates else None, None, state)

    def choice_values(self, network: Any, observation: "Tensor") -> "Tensor":
        """Value of each choice, (1, A)."""
        return network.q_net(observation)


class DqnAgent(QLearner):
    """DQN (Mnih et al. 2015) from Stable-Baselines3, over the choice action; defaults untuned."""

    prioritized: ClassVar[str] = "PrioritizedDqn"

    kind: Literal["dqn"] = "dqn"

    @property
    def algorithm(self) -> "type[OffPolicyAlgorithm]":
        """SB3 class of the algorithm."""
        from stable_baselines3 import DQN

        return DQN


class QrDqnAgent(QLearner):
    """Quantile regression DQN (Dabney et al. 2018) from sb3-contrib, over the choice action; defaults untuned."""

    prioritized: ClassVar[str] = "PrioritizedQrDqn"

    kind: Literal["qr_dqn"] = "qr_dqn"
    n_quantiles: PositiveInt = 25  # of the return of each choice; the 200 of the source take 50 times as long

    @property
    def algorithm(self) -> "type[OffPolicyAlgorithm]":
        """SB3 class of the algorithm."""
        from sb3_contrib import QRDQN

        return QRDQN

    def heads(self, layout: ObservationLayout) -> dict[str, Any]:
        """Keyword arguments of the policy."""
        return {**super().heads(layout), "n_quantiles": self.n_quantiles}

    def choice_values(self, network: Any, observation: "Tensor") -> "Tensor":
        """Mean of the quantiles of each choice, (1, A)."""
        return network.quantile_net(observation).mean(dim=1)
