"""sb3-contrib's maskable PPO on the native vector environment."""

from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from nvtrader_pipelines.envs.observations import ObservationLayout
from nvtrader_pipelines.policies.agents.on_policy import CategoricalLearner
from nvtrader_pipelines.policies.agents.ppo import ClippedObjective

if TYPE_CHECKING:
    from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
    from stable_baselines3.common.policies import BasePolicy


class MaskablePpoAgent(ClippedObjective, CategoricalLearner):
    """PPO over choices, of which those that a session does not allow are masked (Huang & Ontanon 2022).

    From sb3-contrib; defaults are those of ppo, untuned.
    """

    kind: Literal["maskable_ppo"] = "maskable_ppo"
    n_steps: Annotated[int, Field(ge=8, le=4096)] = 16  # per environment and update
    batch_size: Annotated[int, Field(ge=32)] = 256  # steps per minibatch
    learning_rate: Annotated[float, Field(ge=1e-5, le=1e-2)] = 3e-3

    @property
    def algorithm(self) -> "type[OnPolicyAlgorithm]":
        """SB3 class of the algorithm."""
        from sb3_contrib import MaskablePPO

        return MaskablePPO

    def policy(self, layout: ObservationLayout) -> "tuple[type[BasePolicy], dict[str, Any]]":
        """SB3 class of the policy, and its keyword arguments."""
        from sb3_contrib.common.maskable.policies import MaskableActorCriticPolicy

        return MaskableActorCriticPolicy, self.heads(layout)

    def settings(self) -> dict[str, Any]:
        """Arguments of the algorithm that affect results; none is left to the library's default."""
        return {**super().settings(), "rollout_buffer_class": None, "rollout_buffer_kwargs": None}
