"""Stable-Baselines3's A2C on the native vector environment."""

from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import Field, PositiveFloat, PositiveInt, model_validator

from nvtrader_pipelines.policies.agents.on_policy import OnPolicyLearner

if TYPE_CHECKING:
    from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm


class A2cAgent(OnPolicyLearner):
    """A2C (Mnih et al. 2016) from Stable-Baselines3: one update a short rollout; defaults untuned."""

    kind: Literal["a2c"] = "a2c"
    n_envs: PositiveInt = 16  # portfolios side by side; fewer than PPO's, for more updates
    n_steps: Annotated[int, Field(ge=1, le=4096)] = 8  # per environment and update
    learning_rate: Annotated[float, Field(ge=1e-5, le=1e-2)] = 3e-3
    normalize_advantage: bool = False
    use_rms_prop: bool = False  # the paper's optimizer, in place of the backbone's fused Adam
    rms_prop_eps: PositiveFloat = 1e-5

    @model_validator(mode="after")
    def _advantages_can_be_normalized(self) -> Self:
        if self.normalize_advantage and self.n_envs * self.n_steps < 2:
            raise ValueError(
                "normalize_advantage needs n_envs * n_steps of at least 2, since one step has no deviation, but it is "
                f"{self.n_envs * self.n_steps}"
            )
        return self

    @property
    def algorithm(self) -> "type[OnPolicyAlgorithm]":
        """The library's class."""
        from stable_baselines3 import A2C

        return A2C

    def settings(self) -> dict[str, Any]:
        """The algorithm's arguments that decide what is learned; none is left to the library's default."""
        from nvtrader_pipelines.policies.agents.rollouts import InPlaceRolloutBuffer

        return {
            **super().settings(),
            "normalize_advantage": self.normalize_advantage,
            "use_rms_prop": self.use_rms_prop,
            "rms_prop_eps": self.rms_prop_eps,
            "rollout_buffer_class": InPlaceRolloutBuffer,
            "rollout_buffer_kwargs": None,
        }
