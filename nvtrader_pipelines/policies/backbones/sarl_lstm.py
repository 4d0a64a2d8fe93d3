"""Backbone that forecasts whether each name rises."""

from typing import TYPE_CHECKING, Literal

from pydantic import PositiveFloat, PositiveInt

from nvtrader_pipelines.envs.observations import ObservationLayout
from nvtrader_pipelines.policies.backbones.backbone import TrainingHistory
from nvtrader_pipelines.policies.backbones.window import WindowBackbone

if TYPE_CHECKING:
    from torch import nn

    from nvtrader_pipelines.policies.networks.name_forecasts import RiseEncoder


class SarlLstmBackbone(WindowBackbone):
    """LSTM that forecasts the probability that each name rises next, beside the observation (Ye et al. 2020, SARL).

    It reads a name's window of returns; hidden and cell state give the probability. It is trained by cross-entropy on
    the training windows, before the policy, and stays as it is in reinforcement learning.
    """

    kind: Literal["sarl_lstm"] = "sarl_lstm"
    hidden_size: PositiveInt = 128
    epochs: PositiveInt = 3  # of pretraining, over all windows
    batch_size: PositiveInt = 128  # windows
    learning_rate: PositiveFloat = 1e-3  # of pretraining

    def encoder(self, layout: ObservationLayout) -> "RiseEncoder":
        """Build the untrained encoder with torch's generator."""
        from nvtrader_pipelines.policies.networks.name_forecasts import RiseEncoder

        return RiseEncoder(layout, self.hidden_size)

    def prepare(self, policy: "nn.Module", history: TrainingHistory, seed: int) -> None:
        """Train the forecasts on the training windows, and copy them to every extractor."""
        from nvtrader_pipelines.policies.networks.name_forecasts import pretrain

        pretrain(policy, history, self.epochs, self.batch_size, self.learning_rate, seed)
