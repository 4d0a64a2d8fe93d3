"""Backbones that encode the observation's window of returns and leave the rest of the observation as it is."""

from abc import abstractmethod
from typing import Any, ClassVar

import torch
from gymnasium import spaces
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from torch import Tensor, nn

from nvtrader_pipelines.envs.observations import ObservationLayout
from nvtrader_pipelines.policies.backbones.backbone import ExtractorBackbone


class WindowEncoder(nn.Module):
    """A window of returns (n, lookback, n_symbols), oldest session first, to an encoding (n, n_features)."""

    def __init__(self, n_features: int) -> None:
        super().__init__()
        self.n_features = n_features


class WindowBackbone(ExtractorBackbone):
    """An encoder of the window; its encoding and the rest of the observation go to the heads."""

    needs_window: ClassVar[bool] = True

    @abstractmethod
    def encoder(self, layout: ObservationLayout) -> WindowEncoder:
        """The untrained encoder, drawn from torch's generator."""

    def extractor(self, layout: ObservationLayout) -> dict[str, Any]:
        """SB3's `features_extractor_class` and `features_extractor_kwargs`.

        Raises:
            ValueError: if the observation has no window.
        """
        if layout.lookback == 0:
            raise ValueError(
                "a backbone that encodes a window needs an observation that has one, but this one has none; "
                "choose the lookback observation, or the mlp backbone"
            )
        return {
            "features_extractor_class": WindowExtractor,
            "features_extractor_kwargs": {"layout": layout, "backbone": self},
        }


class WindowExtractor(BaseFeaturesExtractor):
    """Observation (n, length) to the window's encoding followed by the rest of the observation."""

    def __init__(self, observation_space: spaces.Box, layout: ObservationLayout, backbone: WindowBackbone) -> None:
        encoder = backbone.encoder(layout)
        self._shape = (layout.lookback, layout.n_symbols)
        self._size = layout.lookback * layout.n_symbols
        super().__init__(observation_space, encoder.n_features + layout.length - self._size)
        self.encoder = encoder

    def window(self, observations: Tensor) -> Tensor:
        """The observations' windows (n, lookback, n_symbols)."""
        return observations[:, : self._size].unflatten(1, self._shape)

    def forward(self, observations: Tensor) -> Tensor:
        """Features (n, features_dim)."""
        return torch.cat([self.encoder(self.window(observations)), observations[:, self._size :]], dim=1)
