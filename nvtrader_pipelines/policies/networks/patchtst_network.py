"""Network of PatchTST."""

import torch
from torch import Tensor, nn

from nvtrader_pipelines.envs.observations import ObservationLayout
from nvtrader_pipelines.policies.networks.attention import TransformerSizes
from nvtrader_pipelines.policies.networks.window_network import WindowEncoder


class PatchTstEncoder(WindowEncoder):
    """Encoder of all names' windows in patches; the encodings are concatenated."""

    def __init__(
        self, layout: ObservationLayout, sizes: TransformerSizes, *, patch_length: int, stride: int, name_features: int
    ) -> None:
        super().__init__(layout.n_symbols * name_features)
        self._length, self._stride = patch_length, stride
        n_patches = 1 + -(-max(layout.lookback - self._length, 0) // self._stride)  # rounded up
        self._padding = self._length + (n_patches - 1) * self._stride - layout.lookback
        self.embedding = nn.Linear(self._length, sizes.d_model)
        self.positions = nn.Parameter(0.02 * torch.randn(n_patches, sizes.d_model))
        self.layers = sizes.layers()
        self.norm = nn.LayerNorm(sizes.d_model)
        self.head = nn.Linear(n_patches * sizes.d_model, name_features)

    def patches(self, window: Tensor) -> Tensor:
        """Cut patches (n * n_symbols, n_patches, patch_length), oldest first; the last ends at the close."""
        series = nn.functional.pad(window.transpose(1, 2).flatten(0, 1), (self._padding, 0))
        return series.unfold(1, self._length, self._stride)

    def forward(self, window: Tensor) -> Tensor:
        """Return encodings (n, n_symbols * name_features)."""
        tokens = self.embedding(self.patches(window)) + self.positions
        for layer in self.layers:
            tokens = layer(tokens, tokens.shape[1])
        return self.head(self.norm(tokens).flatten(1)).reshape(len(window), -1)
