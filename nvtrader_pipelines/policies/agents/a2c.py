"""Stable-Baselines3's A2C on the native vector environment."""

from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import Field, PositiveFloat, PositiveInt, model_validator

from nvtrader_pipelines.policies.agents.on_policy import OnPolicyLearner

if TYPE_CHECKING:
    from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm


class A2cAgent(OnPolicyLearner):
    """A2C (Mnih et al. 2016) from Stable-Baselines3: one update per short rollout; defaults untuned."""

    kind: Literal["a2c"] = "a2c"
    n_envs: PositiveInt = 16  # parallel portfolios; fewer than PPO's, for more updates
    n_steps: Annotated[int, Field(ge=1, le=4096)] = 8  # per environment and update
    learning_rate: Annotated[float, Field(ge=1e-5, le=1e-2)] = 3e-3
    normalize_advantage: bool = False
    use_rms_prop: bool = False  # the paper's optimizer instead of the backbone's fused Adam
    rms_prop_eps: PositiveFloat = 1e-5

    @model_validator(mode="after")
    def _require_normalizable(self) -> Self:
        if self.normalize_advantage and self.n_envs * self.n_steps < 2:
            raise ValueError(
                "normalize_advantage needs n_envs * n_steps of at least 2, since one step has no deviation, but they "
                f"are {self.n_envs} and {self.n_steps}; raise one of them"
            )
        return self

    @property
    def algorithm(self) -> "type[OnPolicyAlgorithm]":
        """SB3 class of the algorithm."""
        from stable_baselines3 import A2C

        return A2C

    def settings(self) -> dict[str, Any]:
        """Arguments of the algorithm that affect results; none is left to the library's default."""
        from nvtrader_pipelines.policies.agents.rollouts import InPlaceRolloutBuffer

        return {
            **super().settings(),
            "normalize_advantage": self.normalize_advantage,
            "use_rms_prop": self.use_rms_prop,
            "rms_prop_eps": self.rms_prop_eps,
            "rollout_buffer_class": InPlaceRolloutBuffer,
            "rollout_buffer_kwargs": None,
        }
