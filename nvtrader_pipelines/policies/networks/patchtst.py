"""The network of PatchTST."""

import torch
from torch import Tensor, nn

from nvtrader_pipelines.envs.observations import ObservationLayout
from nvtrader_pipelines.policies.networks.attention import TransformerSizes
from nvtrader_pipelines.policies.networks.window import WindowEncoder


class PatchTstEncoder(WindowEncoder):
    """The encodings of all names, one after the other."""

    def __init__(
        self,
        layout: ObservationLayout,
        sizes: TransformerSizes,
        *,
        patch_length: int,
        stride: int,
        name_features: int,
    ) -> None:
        super().__init__(layout.n_symbols * name_features)
        self._length, self._stride = patch_length, stride
        further = -(-max(layout.lookback - self._length, 0) // self._stride)  # patches before the last, rounded up
        self._padding = self._length + further * self._stride - layout.lookback
        self.embedding = nn.Linear(self._length, sizes.d_model)
        self.positions = nn.Parameter(0.02 * torch.randn(further + 1, sizes.d_model))
        self.layers = sizes.layers()
        self.norm = nn.LayerNorm(sizes.d_model)
        self.head = nn.Linear((further + 1) * sizes.d_model, name_features)

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
