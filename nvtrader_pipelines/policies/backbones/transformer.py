"""A transformer over the window's sessions."""

import math
from typing import Annotated, Literal, Self

import torch
from pydantic import Field, PositiveInt, model_validator
from torch import Tensor, nn

from nvtrader_pipelines.envs.observations import ObservationLayout
from nvtrader_pipelines.policies.backbones.attention import EncoderLayer, require_divisible
from nvtrader_pipelines.policies.backbones.window import WindowBackbone, WindowEncoder


class TransformerBackbone(WindowBackbone):
    """A causal transformer encoder with sinusoidal positions over the sessions (Vaswani et al. 2017).

    A session is a token and hears itself and those before it; the last session's token is the encoding.
    """

    kind: Literal["transformer"] = "transformer"
    d_model: PositiveInt = 32  # columns of a token, and of the encoding
    n_heads: PositiveInt = 2
    n_layers: Annotated[int, Field(ge=1, le=8)] = 1
    d_ff: PositiveInt = 64  # hidden columns of the feed-forward network

    @model_validator(mode="after")
    def _heads_share(self) -> Self:
        require_divisible(self.d_model, self.n_heads)
        return self

    def encoder(self, layout: ObservationLayout) -> "TransformerEncoder":
        """The untrained encoder, drawn from torch's generator."""
        return TransformerEncoder(layout, self)


class TransformerEncoder(WindowEncoder):
    """The last session's token after all layers, which is all the last layer computes."""

    positions: Tensor
    mask: Tensor

    def __init__(self, layout: ObservationLayout, backbone: TransformerBackbone) -> None:
        super().__init__(backbone.d_model)
        self.embedding = nn.Linear(layout.n_symbols, backbone.d_model)
        sizes = (backbone.d_model, backbone.n_heads, backbone.d_ff)
        self.layers = nn.ModuleList(EncoderLayer(*sizes) for _ in range(backbone.n_layers))
        self.norm = nn.LayerNorm(backbone.d_model)
        self.register_buffer("positions", sinusoids(layout.lookback, backbone.d_model), persistent=False)
        mask = nn.Transformer.generate_square_subsequent_mask(layout.lookback)
        self.register_buffer("mask", mask, persistent=False)

    def forward(self, window: Tensor) -> Tensor:
        """Encodings (n, d_model)."""
        tokens = self.embedding(window) + self.positions
        *first, last = self.layers
        for layer in first:
            tokens = layer(tokens, tokens.shape[1], self.mask)
        return self.norm(last(tokens, 1))[:, 0]


def sinusoids(length: int, d_model: int) -> Tensor:
    """Positions 0, 1, ... as sines (even columns) and cosines (odd ones) of falling frequency, (length, d_model).

    Source: Vaswani et al. (2017), section 3.5.
    """
    columns = torch.arange(d_model)
    frequencies = torch.exp(-math.log(10_000.0) * (columns - columns % 2) / d_model)
    angles = torch.arange(length)[:, None] * frequencies
    return torch.where(columns % 2 == 0, angles.sin(), angles.cos())
