"""Network of a causal transformer encoder."""

import math

import torch
from torch import Tensor, nn

from nvtrader_pipelines.envs.observations import ObservationLayout
from nvtrader_pipelines.policies.networks.attention import TransformerSizes
from nvtrader_pipelines.policies.networks.window_network import WindowEncoder


class TransformerEncoder(WindowEncoder):
    """Encoder that returns the last session's token; the last layer computes only that token."""

    positions: Tensor
    mask: Tensor

    def __init__(self, layout: ObservationLayout, sizes: TransformerSizes) -> None:
        super().__init__(sizes.d_model)
        self.embedding = nn.Linear(layout.n_symbols, sizes.d_model)
        self.layers = sizes.layers()
        self.norm = nn.LayerNorm(sizes.d_model)
        self.register_buffer("positions", sinusoids(layout.lookback, sizes.d_model), persistent=False)
        mask = nn.Transformer.generate_square_subsequent_mask(layout.lookback)
        self.register_buffer("mask", mask, persistent=False)

    def forward(self, window: Tensor) -> Tensor:
        """Return encodings (n, d_model)."""
        tokens = self.embedding(window) + self.positions
        *first, last = self.layers
        for layer in first:
            tokens = layer(tokens, tokens.shape[1], self.mask)
        return self.norm(last(tokens, 1))[:, 0]


def sinusoids(length: int, d_model: int) -> Tensor:
    """Sinusoidal encoding (length, d_model) of positions 0, 1, ...: sines in even columns, cosines in odd ones.

    Source: Vaswani et al. (2017), section 3.5.
    """
    columns = torch.arange(d_model)
    frequencies = torch.exp(-math.log(10_000.0) * (columns - columns % 2) / d_model)
    angles = torch.arange(length)[:, None] * frequencies
    return torch.where(columns % 2 == 0, angles.sin(), angles.cos())
