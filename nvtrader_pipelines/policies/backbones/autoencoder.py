"""An autoencoder's code of the window, learned before reinforcement learning."""

from typing import TYPE_CHECKING, Literal

from pydantic import PositiveFloat, PositiveInt

from nvtrader_pipelines.envs.observations import ObservationLayout
from nvtrader_pipelines.policies.backbones.window import WindowBackbone

if TYPE_CHECKING:
    from torch import Tensor, nn

    from nvtrader_pipelines.policies.networks.autoencoder import CodeEncoder


class AutoencoderBackbone(WindowBackbone):
    """The code of an autoencoder (Hinton & Salakhutdinov 2006) that has learned to reconstruct the training windows.

    Actor and critic share the encoder; the decoder goes once the windows are learned.
    """

    kind: Literal["autoencoder"] = "autoencoder"
    encoder_hidden: PositiveInt = 64  # of the encoder's and the decoder's hidden layer
    code_size: PositiveInt = 16
    epochs: PositiveInt = 30  # of the reconstruction, over all windows
    batch_size: PositiveInt = 128  # windows
    learning_rate: PositiveFloat = 2e-3  # of the reconstruction
    frozen: bool = True  # whether reinforcement learning leaves the encoder as it is

    def encoder(self, layout: ObservationLayout) -> "CodeEncoder":
        """The untrained encoder, drawn from torch's generator."""
        from nvtrader_pipelines.policies.networks.autoencoder import CodeEncoder

        return CodeEncoder(layout, hidden=self.encoder_hidden, code_size=self.code_size, frozen=self.frozen)

    def prepare(self, policy: "nn.Module", observations: "Tensor", seed: int) -> None:
        """Fit the encoder to the windows of the observations (T, length); every copy of it in the policy is the same.

        The same seed gives the same bytes, and torch's generator is left as it was.
        """
        from nvtrader_pipelines.policies.networks.autoencoder import CodeEncoder, reconstruct
        from nvtrader_pipelines.policies.networks.window import WindowExtractor

        first, *others = (module for module in policy.modules() if isinstance(module, WindowExtractor))
        assert isinstance(first.encoder, CodeEncoder)
        reconstruct(
            first.encoder,
            first.window(observations),
            epochs=self.epochs,
            batch_size=self.batch_size,
            learning_rate=self.learning_rate,
            seed=seed,
        )
        for other in others:
            other.encoder.load_state_dict(first.encoder.state_dict())
