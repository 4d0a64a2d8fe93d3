"""Backbones with forecasts of each name beside the observation."""

from typing import TYPE_CHECKING, Literal

from pydantic import PositiveFloat, PositiveInt

from nvtrader_pipelines.envs.observations import ObservationLayout
from nvtrader_pipelines.policies.backbones.backbone import TrainingHistory
from nvtrader_pipelines.policies.backbones.window import WindowBackbone

if TYPE_CHECKING:
    from torch import nn

    from nvtrader_pipelines.policies.networks.name_forecasts import InvestorsEncoder, RiseEncoder


class ForecastBackbone(WindowBackbone):
    """Backbone whose forecasts are trained on the training windows before the policy, and then stay as they are."""

    epochs: PositiveInt = 10  # of pretraining, over all windows
    batch_size: PositiveInt = 128  # windows
    learning_rate: PositiveFloat = 1e-3  # of pretraining

    def prepare(self, policy: "nn.Module", history: TrainingHistory, seed: int) -> None:
        """Train the forecasts on the training windows, and copy them to every extractor."""
        from nvtrader_pipelines.policies.networks.name_forecasts import pretrain

        pretrain(policy, history, self.epochs, self.batch_size, self.learning_rate, seed)


class SarlLstmBackbone(ForecastBackbone):
    """LSTM that forecasts the probability that each name rises next, beside the observation (Ye et al. 2020, SARL).

    It reads a name's window of returns; hidden and cell state give the probability. It is trained by cross-entropy
    before the policy, and stays as it is in reinforcement learning.
    """

    kind: Literal["sarl_lstm"] = "sarl_lstm"
    hidden_size: PositiveInt = 128
    epochs: PositiveInt = 3  # of pretraining, over all windows

    def encoder(self, layout: ObservationLayout) -> "RiseEncoder":
        """Build the untrained encoder with torch's generator."""
        from nvtrader_pipelines.policies.networks.name_forecasts import RiseEncoder

        return RiseEncoder(layout, self.hidden_size)


class InvestorsBackbone(ForecastBackbone):
    """Five networks that forecast AR, SR, WR, MDD and ER of each name, beside the observation (Ding et al. 2018).

    Each reads a name's window of returns and is trained, before the policy, on the descriptors of the window that
    follows it in training, standardized. They stay as they are in reinforcement learning.
    """

    kind: Literal["investors"] = "investors"
    hidden: tuple[PositiveInt, ...] = (128,)  # layers of each head
    descriptor_hidden: PositiveInt = 256

    def encoder(self, layout: ObservationLayout) -> "InvestorsEncoder":
        """Build the untrained encoder with torch's generator."""
        from nvtrader_pipelines.policies.networks.name_forecasts import InvestorsEncoder

        return InvestorsEncoder(layout, self.descriptor_hidden)
