"""DeepTrader: names by the gradient through the market, the share of long positions by REINFORCE."""

from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field, PositiveInt

from nvtrader_pipelines.envs.observations import ObservationLayout
from nvtrader_pipelines.policies.agents.pathwise import PathwiseLearner
from nvtrader_pipelines.policies.backbones import Backbone, SagcnBackbone

if TYPE_CHECKING:
    from stable_baselines3.common.policies import ActorCriticPolicy

    from nvtrader_pipelines.policies.pathwise.training import PathwiseTraining


class DeepTraderAgent(PathwiseLearner):
    """DeepTrader (Wang et al. 2021): the best names long with a share rho, the worst short with 1 - rho.

    Weights of a side are the softmax of its scores' sigmoid. With `long_short`, rho and 1 - rho are shares of its
    `gross`; with `simplex`, of names and cash. A market unit draws rho from a normal distribution, clipped to
    [0, 0.99], and learns it by REINFORCE; decisions take the mean. The names' unit learns by the gradient through the
    market, our choice in place of the source's critic. So are advantages: rewards standardized over an update.

    Source: Wang, Zhang, Xu et al. (2021); TradeMaster for sizes and the market unit's reward.
    """

    backbones: ClassVar[frozenset[str]] = frozenset({"sagcn"})
    is_scores_mapper: ClassVar[bool] = True

    kind: Literal["deeptrader"] = "deeptrader"
    n_envs: Annotated[int, Field(ge=2)] = 64  # windows per update, which the market unit compares
    n_selected: PositiveInt | None = None  # names on each side; half of them, rounded up, if absent
    market_hidden: PositiveInt = 12  # units of the market unit's LSTM
    market_reward: Literal["return", "drawdown"] = "return"  # of a window: log return, or less maximum log drawdown
    backbone: Backbone = SagcnBackbone()

    def require_experiment(self, spec: Any, field: str) -> None:
        """Require an action with two sides.

        Raises:
            ValueError: if the experiment has another, or one that the base class does not take.
        """
        super().require_experiment(spec, field)
        if spec.environment.action.kind not in ("long_short", "simplex"):
            raise ValueError(
                f"environment.action: found {spec.environment.action.kind}, but deeptrader divides an account between "
                "long and short names, or names and cash; choose long_short or simplex"
            )

    def policy(self, layout: ObservationLayout) -> "tuple[type[ActorCriticPolicy], dict[str, Any]]":
        """SB3 class of the policy, and its keyword arguments."""
        from nvtrader_pipelines.policies.networks.deeptrader_network import DeepTraderPolicy

        _, arguments = super().policy(layout)
        sizes = {"n_selected": self.n_selected, "market_hidden": self.market_hidden, **arguments["sizes"]}
        return DeepTraderPolicy, {**arguments, "sizes": sizes}

    def new_training(self, *arguments: Any) -> "PathwiseTraining":
        """Begin a training of both units."""
        from nvtrader_pipelines.policies.pathwise.drawn_shares import DrawnShareTraining

        return DrawnShareTraining(self, *arguments, market_reward=self.market_reward)
