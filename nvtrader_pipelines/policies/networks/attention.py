"""The layer of a transformer encoder."""

from typing import NamedTuple

from torch import Tensor, nn


class TransformerSizes(NamedTuple):
    """Sizes of a stack of encoder layers."""

    d_model: int  # columns of a token
    n_heads: int
    n_layers: int
    d_ff: int  # hidden columns of the feed-forward network

    def layers(self) -> nn.ModuleList:
        """Untrained layers, drawn from torch's generator."""
        return nn.ModuleList(EncoderLayer(self.d_model, self.n_heads, self.d_ff) for _ in range(self.n_layers))


class EncoderLayer(nn.Module):
    """Attention and then a feed-forward network, each added to what came in (Vaswani et al. 2017).

    Inputs are normalised before each part (Xiong et al. 2020), so that no learning rate has to warm up. It is
    `nn.TransformerEncoderLayer(norm_first=True, dropout=0.0)` with the same tensors, but encodes only as many of the
    tokens as are asked for. Without dropout, acting and learning see the same network.
    """

    def __init__(self, d_model: int, n_heads: int, d_ff: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(d_model)
        self.self_attn = nn.MultiheadAttention(d_model, n_heads, batch_first=True)
        self.norm2 = nn.LayerNorm(d_model)
        self.linear1 = nn.Linear(d_model, d_ff)
        self.linear2 = nn.Linear(d_ff, d_model)

    def forward(self, tokens: Tensor, n_last: int, mask: Tensor | None = None) -> Tensor:
        """The last `n_last` of the tokens (n, length, d_model), encoded; where the mask is -inf, none is heard."""
        heard = self.norm1(tokens)
        asking = heard[:, -n_last:]
        encoded = tokens[:, -n_last:] + self.self_attn(asking, heard, heard, need_weights=False, attn_mask=mask)[0]
        return encoded + self.linear2(self.linear1(self.norm2(encoded)).relu())
