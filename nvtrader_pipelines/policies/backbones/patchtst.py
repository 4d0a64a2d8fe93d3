"""PatchTST: one transformer reads every name's window in patches, each name by itself."""

from typing import Annotated, Literal, Self

import torch
from pydantic import Field, PositiveInt, model_validator
from torch import Tensor, nn

from nvtrader_pipelines.envs.observations import ObservationLayout
from nvtrader_pipelines.policies.backbones.attention import EncoderLayer, require_divisible
from nvtrader_pipelines.policies.backbones.window import WindowBackbone, WindowEncoder


class PatchTstBackbone(WindowBackbone):
    """PatchTST (Nie et al. 2023): a name's window is cut into patches, and one transformer shared by all reads them.

    Names do not see each other before the heads. Unlike the paper's, windows keep their level and scale, which the
    observation has already scaled by the training period, layers normalise token by token instead of over the batch,
    and a window that patches do not fill begins with sessions of no return instead of repeating its end.
    """

    kind: Literal["patchtst"] = "patchtst"
    patch_length: PositiveInt = 10  # sessions
    stride: PositiveInt = 5  # sessions from one patch's start to the next one's
    d_model: PositiveInt = 8  # columns of a token
    n_heads: PositiveInt = 1
    n_layers: Annotated[int, Field(ge=1, le=8)] = 1
    d_ff: PositiveInt = 16  # hidden columns of the feed-forward network
    name_features: PositiveInt = 4  # columns of a name's encoding

    @model_validator(mode="after")
    def _patches_cover(self) -> Self:
        if self.stride > self.patch_length:
            raise ValueError(
                f"patches must leave no session out, so stride must be at most patch_length, but stride is "
                f"{self.stride} and patch_length {self.patch_length}"
            )
        return self

    @model_validator(mode="after")
    def _heads_share(self) -> Self:
        require_divisible(self.d_model, self.n_heads)
        return self

    def encoder(self, layout: ObservationLayout) -> "PatchTstEncoder":
        """The untrained encoder, drawn from torch's generator."""
        return PatchTstEncoder(layout, self)


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
