"""Base class of learners without a critic, whose actions are drawn from no distribution."""

from typing import TYPE_CHECKING, Any, ClassVar

from nvtrader_pipelines.envs.observations import ObservationLayout
from nvtrader_pipelines.policies.agents.learner import Learner, NetworkOutput

if TYPE_CHECKING:
    from stable_baselines3.common.policies import ActorCriticPolicy
    from torch import Tensor


class ActorLearner(Learner):
    """Learner of an actor alone; critic and deviation of its network stay as initialized."""

    has_critic: ClassVar[bool] = False
    caveat: ClassVar[str] = (
        "the agent has no critic and draws no actions: its trajectories have neither values nor log-probabilities"
    )

    def policy(self, layout: ObservationLayout) -> "tuple[type[ActorCriticPolicy], dict[str, Any]]":
        """SB3 class of the policy, and its keyword arguments."""
        return self.backbone.actor_critic(layout, log_std_init=0.0)

    def act(
        self,
        network: Any,
        observation: "Tensor",
        state: Any,
        *,
        with_estimates: bool = True,  # noqa: ARG002 - has none
    ) -> NetworkOutput:
        """Return the action, without a value or a log-probability."""
        action = network._predict(observation, deterministic=True)  # noqa: SLF001 - no public method takes tensors
        return NetworkOutput(action.numpy()[0], None, None, state)
