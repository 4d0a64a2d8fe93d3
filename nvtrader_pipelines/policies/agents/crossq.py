"""sb3-contrib's CrossQ on the native vector environment."""

from typing import TYPE_CHECKING, Any, Literal

from pydantic import PositiveInt

from nvtrader_pipelines.envs.observations import ObservationLayout
from nvtrader_pipelines.policies.agents.sac import SoftLearner

if TYPE_CHECKING:
    from gymnasium import spaces
    from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm
    from stable_baselines3.common.policies import BasePolicy

BETAS = (0.5, 0.999)  # of Adam, as in the paper
WARMUP_SHARE = 0.1  # of the updates; sb3-contrib's 100,000 updates are more than a training has here


class CrossQAgent(SoftLearner):
    """CrossQ (Bhatt et al. 2024) from sb3-contrib: slow to train; defaults untuned.

    SAC without target networks: batch renormalization in actor and critics takes their place. In the first tenth of
    the updates, a batch is normalized by its own statistics.
    """

    kind: Literal["crossq"] = "crossq"
    policy_delay: PositiveInt = 3  # updates of the critics per update of the actor

    @property
    def algorithm(self) -> "type[OffPolicyAlgorithm]":
        """SB3 class of the algorithm."""
        from sb3_contrib import CrossQ

        return CrossQ

    def settings(self, n_actions: int) -> dict[str, Any]:
        """Arguments of the algorithm that affect results; none is left to the library's default."""
        return {**super().settings(n_actions), "policy_delay": self.policy_delay}

    def heads(self, layout: ObservationLayout) -> dict[str, Any]:
        """Keyword arguments of the policy."""
        heads = super().heads(layout)
        n_rounds = (self.total_timesteps - self.learning_starts) // (self.n_envs * self.train_freq)
        return {
            **heads,
            "optimizer_kwargs": {**heads["optimizer_kwargs"], "betas": BETAS},
            "batch_norm": True,
            "batch_norm_momentum": 0.01,
            "batch_norm_eps": 0.001,
            "renorm_warmup_steps": int(WARMUP_SHARE * n_rounds * self.gradient_steps),
        }

    def network(
        self, layout: ObservationLayout, observation_space: "spaces.Box", action_space: "spaces.Space[Any]"
    ) -> "BasePolicy":
        """Build a network for inference, which normalizes by the statistics of its training."""
        network = super().network(layout, observation_space, action_space)
        network.set_training_mode(False)
        return network
