"""Backbones that encode the observation's window of returns and pass the rest through."""

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

from nvtrader_pipelines.envs.observations import ObservationLayout
from nvtrader_pipelines.policies.backbones.backbone import ExtractorBackbone

if TYPE_CHECKING:
    from nvtrader_pipelines.policies.networks.window_network import WindowEncoder


class WindowBackbone(ExtractorBackbone):
    """Backbone with a window encoder; the encoding and the rest of the observation go to the heads."""

    needs_window: ClassVar[bool] = True

    @abstractmethod
    def encoder(self, layout: ObservationLayout) -> "WindowEncoder":
        """Build the untrained encoder with torch's generator."""

    def extractor(self, layout: ObservationLayout) -> dict[str, Any]:
        """SB3's `features_extractor_class` and `features_extractor_kwargs`.

        Raises:
            ValueError: if the observation has no window.
        """
        if layout.lookback == 0:
            raise ValueError(
                "this backbone needs an observation with a window, but the chosen one has none; "
                "choose the lookback observation, or the mlp backbone"
            )
        from nvtrader_pipelines.policies.networks.window_network import WindowExtractor

        return {
            "features_extractor_class": WindowExtractor,
            "features_extractor_kwargs": {"layout": layout, "make_encoder": self.encoder},
        }
