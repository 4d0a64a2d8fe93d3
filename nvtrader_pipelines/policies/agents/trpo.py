"""sb3-contrib's TRPO on the native vector environment."""

from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, PositiveFloat, PositiveInt, model_validator

from nvtrader_pipelines.envs.observations import ObservationLayout
from nvtrader_pipelines.policies.agents.on_policy import (
    GaeLambda,
    GaussianLearner,
    RolloutLearner,
    require_whole_batches,
)

if TYPE_CHECKING:
    from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
    from stable_baselines3.common.policies import ActorCriticPolicy


class TrpoAgent(RolloutLearner, GaussianLearner):
    """TRPO (Schulman et al. 2015) from sb3-contrib: one step of bounded divergence per rollout; defaults untuned.

    `learning_rate` is the critic's. Actor and critic have an extractor each, or the critic's updates would move the
    actor out of the trust region.
    """

    backbones: ClassVar[frozenset[str]] = frozenset({"mlp", "recurrent", "shared_asset"})  # all weights have curvature
    is_tunable: ClassVar[bool] = False  # its extractors are not ppo's

    kind: Literal["trpo"] = "trpo"
    gae_lambda: GaeLambda = 0.9
    n_steps: Annotated[int, Field(ge=8, le=4096)] = 16  # per environment and update
    batch_size: Annotated[int, Field(ge=32)] = 256  # steps per minibatch of the critic
    target_kl: PositiveFloat = 0.01  # largest mean divergence of an update
    cg_max_steps: PositiveInt = 15  # of the conjugate gradient method
    cg_damping: PositiveFloat = 0.1
    line_search_shrinking_factor: Annotated[float, Field(gt=0.0, lt=1.0)] = 0.8
    line_search_max_iter: PositiveInt = 10
    n_critic_updates: PositiveInt = 10  # per rollout, each on all minibatches

    @model_validator(mode="after")
    def _require_whole_batches(self) -> Self:
        require_whole_batches(self.n_envs * self.n_steps, self.batch_size)
        return self

    @property
    def algorithm(self) -> "type[OnPolicyAlgorithm]":
        """SB3 class of the algorithm."""
        from sb3_contrib import TRPO

        return TRPO

    def policy(self, layout: ObservationLayout) -> "tuple[type[ActorCriticPolicy], dict[str, Any]]":
        """SB3 class of the policy, and its keyword arguments."""
        from stable_baselines3.common.policies import ActorCriticPolicy

        policy_class, policy_kwargs = super().policy(layout)
        if "share_features_extractor" not in policy_kwargs:
            return policy_class, policy_kwargs
        return ActorCriticPolicy, {**policy_kwargs, "share_features_extractor": False}

    def settings(self) -> dict[str, Any]:
        """Arguments of the algorithm that affect results; none is left to the library's default."""
        from nvtrader_pipelines.policies.agents.rollouts import InPlaceRolloutBuffer

        return {
            **super().settings(),
            "gae_lambda": self.gae_lambda,
            "batch_size": self.batch_size,
            "target_kl": self.target_kl,
            "cg_max_steps": self.cg_max_steps,
            "cg_damping": self.cg_damping,
            "line_search_shrinking_factor": self.line_search_shrinking_factor,
            "line_search_max_iter": self.line_search_max_iter,
            "n_critic_updates": self.n_critic_updates,
            "normalize_advantage": True,
            "sub_sampling_factor": 1,
            "use_sde": False,
            "sde_sample_freq": -1,
            "rollout_buffer_class": InPlaceRolloutBuffer,
            "rollout_buffer_kwargs": None,
        }
