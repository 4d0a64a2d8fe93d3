"""Stable-Baselines3's PPO on the native vector environment."""

from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import Field, PositiveFloat, PositiveInt, model_validator

from nvtrader_pipelines.policies.agents.on_policy import AdvantageLearner, OnPolicyLearner, require_whole_batches

if TYPE_CHECKING:
    from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm


class ClippedObjective(AdvantageLearner):
    """Several epochs per rollout on a clipped objective."""

    batch_size: Annotated[int, Field(ge=32)] = 2048  # steps per minibatch
    n_epochs: Annotated[int, Field(ge=1, le=30)] = 4
    clip_range: PositiveFloat = 0.2

    @model_validator(mode="after")
    def _require_whole_batches(self) -> Self:
        require_whole_batches(self.n_envs * self.n_steps, self.batch_size)
        return self

    def settings(self) -> dict[str, Any]:
        """Arguments of the algorithm that affect results; none is left to the library's default."""
        return {
            **super().settings(),
            "batch_size": self.batch_size,
            "n_epochs": self.n_epochs,
            "clip_range": self.clip_range,
            "clip_range_vf": None,
            "normalize_advantage": True,
            "target_kl": None,
        }


class ClippedLearner(ClippedObjective, OnPolicyLearner):
    """Actor-critic with several epochs per rollout and a clipped objective."""


class PpoAgent(ClippedLearner):
    """PPO (Schulman et al. 2017) from Stable-Baselines3: recommended, with measured defaults.

    Rollout, minibatch, epochs and learning rate gained most in sample of all settings tried within the CPU time of the
    default length (`benchmarks/claims/learning_curves.py`, data before 2010); out of sample, no setting was
    significantly better or worse. A third of the length gains almost nothing. Slow learning rates only look safe: a
    policy that hardly learns stays at its start. Residual policies at 3e-4 and 1e-3 were still at their anchor after
    150,000 steps, those at 3e-3 were not.
    """

    kind: Literal["ppo"] = "ppo"
    total_timesteps: PositiveInt = 81_920  # steps of all portfolios together; the last rollout is completed
    n_steps: Annotated[int, Field(ge=8, le=4096)] = 16  # per environment and update
    batch_size: Annotated[int, Field(ge=32)] = 256  # steps per minibatch
    n_epochs: Annotated[int, Field(ge=1, le=30)] = 1
    learning_rate: Annotated[float, Field(ge=1e-5, le=1e-2)] = 3e-3

    @property
    def algorithm(self) -> "type[OnPolicyAlgorithm]":
        """SB3 class of the algorithm."""
        from nvtrader_pipelines.policies.agents.analytic_ppo import AnalyticPpo

        return AnalyticPpo

    def settings(self) -> dict[str, Any]:
        """Arguments of the algorithm that affect results; none is left to the library's default."""
        from nvtrader_pipelines.policies.agents.rollouts import InPlaceRolloutBuffer

        return {**super().settings(), "rollout_buffer_class": InPlaceRolloutBuffer, "rollout_buffer_kwargs": None}
