"""Investor-Imitator: REINFORCE over the portfolios of imitated investors."""

from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt, model_validator

from nvtrader_pipelines.envs.observations import ObservationLayout
from nvtrader_pipelines.policies.agents.on_policy import CategoricalLearner, RolloutLearner
from nvtrader_pipelines.policies.backbones import Backbone, InvestorsBackbone

if TYPE_CHECKING:
    from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
    from stable_baselines3.common.policies import ActorCriticPolicy


class InvestorImitatorAgent(RolloutLearner, CategoricalLearner):
    """Investor-Imitator (Ding et al. 2018): a policy of REINFORCE chooses the investor to imitate.

    Its state has the five descriptors that networks of 256 units forecast for each name. The return of a choice is its
    reward alone, without discount or critic, so values are null. In the source, weights are the softmax of forecasts;
    here they are those of the choice action. Defaults untuned.
    """

    backbones: ClassVar[frozenset[str]] = frozenset({"investors"})
    has_critic: ClassVar[bool] = False
    caveat: ClassVar[str] = "the agent has no critic: its trajectories have no values"

    kind: Literal["investor_imitator"] = "investor_imitator"
    n_envs: PositiveInt = 16  # parallel portfolios
    n_steps: Annotated[int, Field(ge=8, le=4096)] = 32  # per environment and update: 512 steps, about the source's 500
    gamma: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.0
    ent_coef: NonNegativeFloat = 0.0  # weight of the entropy bonus
    max_grad_norm: PositiveFloat = 0.5
    backbone: Backbone = InvestorsBackbone()

    @model_validator(mode="after")
    def _require_no_discount(self) -> Self:
        if self.gamma > 0.0:
            raise ValueError(
                f"gamma must be 0, as the return of a choice is its reward alone, but is {self.gamma:g}; leave it out"
            )
        return self

    @property
    def algorithm(self) -> "type[OnPolicyAlgorithm]":
        """SB3 class of the algorithm."""
        from nvtrader_pipelines.policies.agents.reinforce import Reinforce

        return Reinforce

    def policy(self, layout: ObservationLayout) -> "tuple[type[ActorCriticPolicy], dict[str, Any]]":
        """SB3 class of the policy, and its keyword arguments."""
        from stable_baselines3.common.policies import ActorCriticPolicy

        return ActorCriticPolicy, self.heads(layout)

    def settings(self) -> dict[str, Any]:
        """Arguments of the algorithm that affect results; none is left to the library's default."""
        from nvtrader_pipelines.policies.agents.rollouts import InPlaceRolloutBuffer

        return {
            **super().settings(),
            "gae_lambda": 1.0,
            "ent_coef": self.ent_coef,
            "vf_coef": 0.0,
            "max_grad_norm": self.max_grad_norm,
            "normalize_advantage": False,
            "use_rms_prop": False,
            "rms_prop_eps": 1e-5,
            "use_sde": False,
            "sde_sample_freq": -1,
            "rollout_buffer_class": InPlaceRolloutBuffer,
            "rollout_buffer_kwargs": None,
        }
