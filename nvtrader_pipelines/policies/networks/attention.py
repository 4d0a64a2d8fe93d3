"""Transformer encoder layer."""

from typing import NamedTuple

from torch import Tensor, nn


class TransformerSizes(NamedTuple):
    """Sizes of a stack of encoder layers."""

    d_model: int  # columns of a token
    n_heads: int
    n_layers: int
    d_ff: int  # hidden columns of the feed-forward network

    def layers(self) -> nn.ModuleList:
        """Build untrained layers with torch's generator."""
        return nn.ModuleList(EncoderLayer(self.d_model, self.n_heads, self.d_ff) for _ in range(self.n_layers))


class EncoderLayer(nn.Module):
    """Attention, then a feed-forward network, each with a residual connection (Vaswani et al. 2017).

    Layer normalization comes first (Xiong et al. 2020), so no learning-rate warm-up is needed. It equals
    `nn.TransformerEncoderLayer(norm_first=True, dropout=0.0)` with the same tensors, but encodes only the requested
    number of tokens. Without dropout, acting and learning use the same network.
    """

    def __init__(self, d_model: int, n_heads: int, d_ff: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(d_model)
        self.self_attn = nn.MultiheadAttention(d_model, n_heads, batch_first=True)
        self.norm2 = nn.LayerNorm(d_model)
        self.linear1 = nn.Linear(d_model, d_ff)
        self.linear2 = nn.Linear(d_ff, d_model)

    def forward(self, tokens: Tensor, n_last: int, mask: Tensor | None = None) -> Tensor:
        """Encode the last `n_last` of the tokens (n, length, d_model); -inf in the mask blocks attention."""
        keys = self.norm1(tokens)
        queries = keys[:, -n_last:]
        encoded = tokens[:, -n_last:] + self.self_attn(queries, keys, keys, need_weights=False, attn_mask=mask)[0]
        return encoded + self.linear2(self.linear1(self.norm2(encoded)).relu())
