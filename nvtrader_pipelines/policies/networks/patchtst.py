"""The network of PatchTST."""

import torch
from torch import Tensor, nn

from nvtrader_pipelines.envs.observations import ObservationLayout
from nvtrader_pipelines.policies.backbones.patchtst import PatchTstBackbone
from nvtrader_pipelines.policies.networks.attention import EncoderLayer
from nvtrader_pipelines.policies.networks.window import WindowEncoder


class PatchTstEncoder(WindowEncoder):
    """The encodings of all names, one after the other."""

    def __init__(self, layout: ObservationLayout, backbone: PatchTstBackbone) -> None:
        super().__init__(layout.n_symbols * backbone.name_features)
        self._length, self._stride = backbone.patch_length, backbone.stride
        further = -(-max(layout.lookback - self._length, 0) // self._stride)  # patches before the last, rounded up
        self._padding = self._length + further * self._stride - layout.lookback
        self.embedding = nn.Linear(self._length, backbone.d_model)
        self.positions = nn.Parameter(0.02 * torch.randn(further + 1, backbone.d_model))
        sizes = (backbone.d_model, backbone.n_heads, backbone.d_ff)
        self.layers = nn.ModuleList(EncoderLayer(*sizes) for _ in range(backbone.n_layers))
        self.norm = nn.LayerNorm(backbone.d_model)
        self.head = nn.Linear((further + 1) * backbone.d_model, backbone.name_features)

    def patches(self, window: Tensor) -> Tensor:
        """Each name's patches, oldest first, (n * n_symbols, n_patches, patch_length); the last ends at the close."""
        series = nn.functional.pad(window.transpose(1, 2).flatten(0, 1), (self._padding, 0))
        return series.unfold(1, self._length, self._stride)

    def forward(self, window: Tensor) -> Tensor:
        """Encodings (n, n_symbols * name_features)."""
        tokens = self.embedding(self.patches(window)) + self.positions
        for layer in self.layers:
            tokens = layer(tokens, tokens.shape[1])
        return self.head(self.norm(tokens).flatten(1)).reshape(len(window), -1)
