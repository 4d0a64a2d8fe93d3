"""GRPO of a Dirichlet policy on the differentiable market."""

from typing import TYPE_CHECKING, Any, ClassVar, Literal

from nvtrader_pipelines.envs.observations import ObservationLayout
from nvtrader_pipelines.policies.agents.grpo_settings import GrpoSettings
from nvtrader_pipelines.policies.agents.pathwise import WindowLearner

if TYPE_CHECKING:
    from stable_baselines3.common.policies import ActorCriticPolicy

    from nvtrader_pipelines.policies.pathwise.grpo import GrpoTraining


class DifferentiableGrpoAgent(GrpoSettings, WindowLearner):
    """GRPO (Shao et al. 2024) of a Dirichlet policy over names and cash, played by the differentiable market.

    From each start, `group_size` accounts draw their own weights; advantages compare their objectives: annual log
    growth or Sharpe ratio, less penalties for squared log growth and for soft drawdowns. The policy at inference is the
    distribution's mean, within the action's bound. `learning_rate` is AdamW's, and Muon's falls with it.

    Source: lee101/stock-prediction (differentiable_market) for loss, group size, coefficients and optimizers, whose
    gradient is the score function alone: `pathwise_weight` adds that through the market. Objective and sizes are ours.
    """

    actions: ClassVar[tuple[str, ...]] = ("simplex",)
    caveat: ClassVar[str] = (
        "the agent has no critic and acts by the mean of its distribution: its trajectories have neither values nor "
        "log-probabilities"
    )

    kind: Literal["differentiable_grpo"] = "differentiable_grpo"

    def new_training(self, *arguments: Any) -> "GrpoTraining":
        """Begin a training on a simulation, with a seed and hooks."""
        from nvtrader_pipelines.policies.pathwise.grpo import GrpoTraining

        return GrpoTraining(self, *arguments)

    def policy(self, layout: ObservationLayout) -> "tuple[type[ActorCriticPolicy], dict[str, Any]]":
        """SB3 class of the policy, and its keyword arguments."""
        from nvtrader_pipelines.policies.networks.dirichlet_policy import DirichletPolicy

        self.extractor(layout)  # raises for other backbones
        return DirichletPolicy, self.backbone.actor_critic(layout, log_std_init=0.0)[1]
