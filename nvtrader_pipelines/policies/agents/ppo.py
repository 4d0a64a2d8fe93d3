"""Stable-Baselines3's PPO on the native vector environment."""

from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import Field, PositiveFloat, PositiveInt, model_validator

from nvtrader_pipelines.policies.agents.on_policy import OnPolicyLearner

if TYPE_CHECKING:
    from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm


class ClippedLearner(OnPolicyLearner):
    """An actor-critic that goes over each rollout several times, and keeps close to the policy that played it."""

    batch_size: Annotated[int, Field(ge=32)] = 2048  # steps of a minibatch
    n_epochs: Annotated[int, Field(ge=1, le=30)] = 4
    clip_range: PositiveFloat = 0.2

    @model_validator(mode="after")
    def _batches_fill(self) -> Self:
        rollout = self.n_envs * self.n_steps
        if rollout % self.batch_size:
            raise ValueError(
                f"n_envs * n_steps = {rollout} must be a multiple of batch_size = {self.batch_size}; "
                "a truncated minibatch would be noisier than the rest"
            )
        return self

    def settings(self) -> dict[str, Any]:
        """The algorithm's arguments that decide what is learned; none is left to the library's default."""
        return {
            **super().settings(),
            "batch_size": self.batch_size,
            "n_epochs": self.n_epochs,
            "clip_range": self.clip_range,
            "clip_range_vf": None,
            "normalize_advantage": True,
            "target_kl": None,
        }


class PpoAgent(ClippedLearner):
    """PPO (Schulman et al. 2017) from Stable-Baselines3: recommended, with measured defaults.

    Rollout, minibatch, epochs and learning rate are those of the settings tried that gained most on the sessions
    trained on for the CPU seconds that the default length takes; on the sessions after those, none gained or lost for
    certain (`benchmarks/learning_curves.py`, before 2010). A third of the length gains next to nothing.
    Slow rates look safe, for what hardly learns stays where it began: residual policies of 3e-4 and 1e-3 were still at
    their anchor after 150,000 steps, and those of 3e-3 were not.
    """

    kind: Literal["ppo"] = "ppo"
    total_timesteps: PositiveInt = 81_920  # steps of all portfolios together; the last rollout is finished
    n_steps: Annotated[int, Field(ge=8, le=4096)] = 16  # per environment and update
    batch_size: Annotated[int, Field(ge=32)] = 256  # steps of a minibatch
    n_epochs: Annotated[int, Field(ge=1, le=30)] = 1
    learning_rate: Annotated[float, Field(ge=1e-5, le=1e-2)] = 3e-3

    @property
    def algorithm(self) -> "type[OnPolicyAlgorithm]":
        """The library's class."""
        from stable_baselines3 import PPO

        return PPO

    def settings(self) -> dict[str, Any]:
        """The algorithm's arguments that decide what is learned; none is left to the library's default."""
        from nvtrader_pipelines.policies.agents.rollouts import InPlaceRolloutBuffer

        return {**super().settings(), "rollout_buffer_class": InPlaceRolloutBuffer, "rollout_buffer_kwargs": None}
