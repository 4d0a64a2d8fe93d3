"""Stable-Baselines3's SAC on the native vector environment."""

from typing import TYPE_CHECKING, Any, Literal

from pydantic import NonNegativeFloat

from nvtrader_pipelines.policies.agents.off_policy import OffPolicyLearner, ReplayLearner

if TYPE_CHECKING:
    from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm


class SoftLearner(ReplayLearner):
    """Off-policy learner with an entropy bonus.

    SB3's default coefficient, `auto`, starts at 1, hundreds of times the reward of a step here, and does not fall in a
    short training. The small fixed default is our choice.
    """

    ent_coef: NonNegativeFloat | Literal["auto"] = 1e-4

    def settings(self, n_actions: int) -> dict[str, Any]:
        """Arguments of the algorithm that affect results; none is left to the library's default."""
        return {
            **super().settings(n_actions),
            "ent_coef": self.ent_coef,
            "target_entropy": "auto",
            "use_sde": False,
            "sde_sample_freq": -1,
            "use_sde_at_warmup": False,
        }


class SoftTargetLearner(SoftLearner, OffPolicyLearner):
    """Off-policy learner with an entropy bonus and target networks."""

    def settings(self, n_actions: int) -> dict[str, Any]:
        """Arguments of the algorithm that affect results; none is left to the library's default."""
        return {**super().settings(n_actions), "target_update_interval": 1}


class SacAgent(SoftTargetLearner):
    """SAC (Haarnoja et al. 2018) from Stable-Baselines3: slow to train; defaults untuned.

    Actor and critics are updated after each step of all portfolios, so a step takes several times that of PPO.
    """

    kind: Literal["sac"] = "sac"

    @property
    def algorithm(self) -> "type[OffPolicyAlgorithm]":
        """SB3 class of the algorithm."""
        from stable_baselines3 import SAC

        return SAC
