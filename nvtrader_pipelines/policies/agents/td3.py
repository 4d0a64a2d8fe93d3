"""Stable-Baselines3's TD3 and DDPG, and SARL, on the native vector environment."""

from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from pydantic import NonNegativeFloat, PositiveInt

from nvtrader_pipelines.policies.agents.off_policy import OffPolicyLearner
from nvtrader_pipelines.policies.backbones import Backbone, SarlLstmBackbone

if TYPE_CHECKING:
    from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm


class NoisyLearner(OffPolicyLearner):
    """Off-policy learner of a deterministic policy that explores by Gaussian noise of the papers' size.

    All noise is on actions scaled to [-1, 1].
    """

    action_noise: NonNegativeFloat = 0.1  # standard deviation

    def settings(self, n_actions: int) -> dict[str, Any]:
        """Arguments of the algorithm that affect results; none is left to the library's default."""
        from stable_baselines3.common.noise import NormalActionNoise

        noise = NormalActionNoise(np.zeros(n_actions), np.full(n_actions, self.action_noise))
        return {**super().settings(n_actions), "action_noise": noise}


class DdpgLearner(NoisyLearner):
    """Learner by Stable-Baselines3's DDPG."""

    n_critics: ClassVar[int] = 1
    prioritized: ClassVar[str] = "PrioritizedDdpg"

    @property
    def algorithm(self) -> "type[OffPolicyAlgorithm]":
        """SB3 class of the algorithm."""
        from stable_baselines3 import DDPG

        return DDPG


class DdpgAgent(DdpgLearner):
    """DDPG (Lillicrap et al. 2016) from Stable-Baselines3: slow to train; defaults untuned.

    TD3 without its remedies for overestimation: one critic, no noise on targets, and the actor learns at every update.
    """

    kind: Literal["ddpg"] = "ddpg"


class SarlAgent(DdpgLearner):
    """SARL (Ye et al. 2020): DDPG whose state has the probability that each name rises next.

    In the source, the forecast reads prices of five sessions and the action is a softmax of logits in [-5, 5], which
    the simplex action is. Defaults untuned.
    """

    backbones: ClassVar[frozenset[str]] = frozenset({"sarl_lstm"})

    kind: Literal["sarl"] = "sarl"
    backbone: Backbone = SarlLstmBackbone()


class Td3Agent(NoisyLearner):
    """TD3 (Fujimoto et al. 2018) from Stable-Baselines3: slow to train; defaults untuned.

    Critics are updated after each step of all portfolios, so a step takes several times as long as PPO's.
    """

    prioritized: ClassVar[str] = "PrioritizedTd3"

    kind: Literal["td3"] = "td3"
    policy_delay: PositiveInt = 2  # updates of the critics per update of the actor
    target_policy_noise: NonNegativeFloat = 0.2  # standard deviation, on the actions of the critics' targets
    target_noise_clip: NonNegativeFloat = 0.5

    @property
    def algorithm(self) -> "type[OffPolicyAlgorithm]":
        """SB3 class of the algorithm."""
        from stable_baselines3 import TD3

        return TD3

    def settings(self, n_actions: int) -> dict[str, Any]:
        """Arguments of the algorithm that affect results; none is left to the library's default."""
        return {
            **super().settings(n_actions),
            "policy_delay": self.policy_delay,
            "target_policy_noise": self.target_policy_noise,
            "target_noise_clip": self.target_noise_clip,
        }
