"""Feature extractor that encodes the window of returns and passes the rest of the observation through."""

from collections.abc import Callable

import torch
from gymnasium import spaces
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from torch import Tensor, nn

from nvtrader_pipelines.envs.observations import ObservationLayout


class WindowEncoder(nn.Module):
    """Network from a window of returns (n, lookback, n_symbols), oldest first, to an encoding (n, n_features)."""

    def __init__(self, n_features: int) -> None:
        super().__init__()
        self.n_features = n_features


class WindowExtractor(BaseFeaturesExtractor):
    """Feature extractor: the window's encoding followed by the rest of the observation (n, length)."""

    def __init__(
        self,
        observation_space: spaces.Box,
        layout: ObservationLayout,
        make_encoder: Callable[[ObservationLayout], WindowEncoder],
    ) -> None:
        encoder = make_encoder(layout)
        self._shape = (layout.lookback, layout.n_symbols)
        self._size = layout.lookback * layout.n_symbols
        super().__init__(observation_space, encoder.n_features + layout.length - self._size)
        self.encoder = encoder

    def window(self, observations: Tensor) -> Tensor:
        """Return the windows (n, lookback, n_symbols) of observations."""
        return observations[:, : self._size].unflatten(1, self._shape)

    def forward(self, observations: Tensor) -> Tensor:
        """Return features (n, features_dim)."""
        return torch.cat([self.encoder(self.window(observations)), observations[:, self._size :]], dim=1)
