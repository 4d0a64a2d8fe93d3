"""Autoencoder backbone, pretrained on the observation window."""

from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import PositiveFloat, PositiveInt

from nvtrader_pipelines.envs.observations import ObservationLayout
from nvtrader_pipelines.policies.backbones.backbone import TrainingHistory
from nvtrader_pipelines.policies.backbones.window import WindowBackbone

if TYPE_CHECKING:
    from torch import nn

    from nvtrader_pipelines.policies.networks.autoencoder_network import CodeEncoder


class AutoencoderBackbone(WindowBackbone):
    """Encoder of an autoencoder (Hinton & Salakhutdinov 2006) pretrained to reconstruct the training windows.

    Actor and critic share the encoder; the decoder is discarded after pretraining.
    """

    kind: Literal["autoencoder"] = "autoencoder"
    aliases: ClassVar[tuple[str, ...]] = ("AutoencoderBackbone",)
    encoder_hidden: PositiveInt = 64  # width of the hidden layer of encoder and decoder
    code_size: PositiveInt = 16
    epochs: PositiveInt = 30  # of pretraining, over all windows
    batch_size: PositiveInt = 128  # windows
    learning_rate: PositiveFloat = 2e-3  # of pretraining
    frozen: bool = True  # whether reinforcement learning leaves the encoder unchanged

    def encoder(self, layout: ObservationLayout) -> "CodeEncoder":
        """Build the untrained encoder with torch's generator."""
        from nvtrader_pipelines.policies.networks.autoencoder_network import CodeEncoder

        return CodeEncoder(layout, hidden=self.encoder_hidden, code_size=self.code_size, frozen=self.frozen)

    def prepare(self, policy: "nn.Module", history: TrainingHistory, seed: int) -> None:
        """Pretrain the encoder on the windows of the observations, and copy it to every extractor.

        Equal seeds give equal bytes; torch's generator keeps its state.
        """
        from nvtrader_pipelines.policies.networks.autoencoder_network import CodeEncoder, reconstruct
        from nvtrader_pipelines.policies.networks.window_network import WindowExtractor

        first, *others = (module for module in policy.modules() if isinstance(module, WindowExtractor))
        assert isinstance(first.encoder, CodeEncoder)
        reconstruct(
            first.encoder,
            first.window(history.observations),
            epochs=self.epochs,
            batch_size=self.batch_size,
            learning_rate=self.learning_rate,
            seed=seed,
        )
        for other in others:
            other.encoder.load_state_dict(first.encoder.state_dict())
