"""DeepTrader's asset unit as a backbone."""

from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field, PositiveInt
from typing_extensions import override

from nvtrader_pipelines.policies.backbones.backbone import NameScoresBackbone, TrainingHistory

if TYPE_CHECKING:
    from nvtrader_pipelines.policies.networks.sagcn_network import SagcnPolicy


class SagcnBackbone(NameScoresBackbone):
    """Convolutions over time and over two graphs of names, with attention between names (DeepTrader's asset unit).

    One graph has the names' correlations in the training windows, the other is learned: softmax(relu(e e')). Scores are
    those below the source's sigmoid; features are not read. In place of batch normalization, layers are normalized over
    their channels, so that a decision depends on no other account and is the same in training.

    Source: Wang, Zhang, Xu et al. (2021); sizes are those of TradeMaster for the Dow.
    """

    needs_window: ClassVar[bool] = True
    observations: ClassVar[tuple[str, ...]] = ("lookback", "regime")

    kind: Literal["sagcn"] = "sagcn"
    channels: PositiveInt = 12
    n_layers: Annotated[int, Field(ge=1, le=8)] = 4  # dilations 1, 2, 4, ...: they read the last 2^n_layers sessions
    dropout: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.2  # in updates; 0 suits agents that draw actions, such as ppo
    critic_hidden: PositiveInt = 32

    def policy_class(self) -> "type[SagcnPolicy]":
        """SB3 policy class, whose network has the fields as sizes."""
        from nvtrader_pipelines.policies.networks.sagcn_network import SagcnPolicy

        return SagcnPolicy

    @override
    def prepare(self, policy: Any, history: TrainingHistory, seed: int) -> None:
        """Store the names' correlations in the training windows."""
        policy.mlp_extractor.assets.fit_graph(history.next_returns)
