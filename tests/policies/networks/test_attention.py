import numpy as np
import pytest
import torch
from torch import nn

from nvtrader_pipelines.policies.networks.attention import EncoderLayer

D_MODEL, N_HEADS, D_FF, LENGTH = 8, 2, 12, 6
CAUSAL = nn.Transformer.generate_square_subsequent_mask(LENGTH)


def layer():
    torch.manual_seed(3)
    made = EncoderLayer(D_MODEL, N_HEADS, D_FF).double()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))  # no bias stays zero, no scale one
    return made


def tokens():
    return torch.randn(5, LENGTH, D_MODEL, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def layer_norm(x, norm):
    x = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + norm.eps)
    return x * norm.weight.numpy(force=True) + norm.bias.numpy(force=True)


def linear(x, weight, bias):
    return x @ weight.numpy(force=True).T + bias.numpy(force=True)


def attended(x, attention, mask):
    """softmax(Q K' / sqrt(d) + mask) V in each head, by its definition (Vaswani et al. 2017, section 3.2)."""
    projected = linear(x, attention.in_proj_weight, attention.in_proj_bias)
    query, key, value = np.split(projected, 3, axis=-1)
    size, heads = D_MODEL // N_HEADS, []
    for h in range(N_HEADS):
        own = slice(h * size, (h + 1) * size)
        scores = query[..., own] @ key[..., own].swapaxes(1, 2) / np.sqrt(size) + mask
        shares = np.exp(scores - scores.max(-1, keepdims=True))
        heads.append(shares / shares.sum(-1, keepdims=True) @ value[..., own])
    return linear(np.concatenate(heads, -1), attention.out_proj.weight, attention.out_proj.bias)


@pytest.mark.parametrize("mask", [None, CAUSAL.double()], ids=["full", "causal"])
def test_encoder_layer_matches_its_definition(mask):
    made, x = layer(), tokens().numpy()
    shift = 0.0 if mask is None else mask.numpy()
    x = x + attended(layer_norm(x, made.norm1), made.self_attn, shift)
    hidden = np.maximum(linear(layer_norm(x, made.norm2), made.linear1.weight, made.linear1.bias), 0.0)
    expected = x + linear(hidden, made.linear2.weight, made.linear2.bias)
    np.testing.assert_allclose(made(tokens(), LENGTH, mask).numpy(force=True), expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("mask", [None, CAUSAL.double()], ids=["full", "causal"])
def test_encoder_layer_matches_torch(mask):
    made = layer()
    own = nn.TransformerEncoderLayer(D_MODEL, N_HEADS, D_FF, dropout=0.0, batch_first=True, norm_first=True).double()
    own.load_state_dict(made.state_dict())
    torch.testing.assert_close(made(tokens(), LENGTH, mask), own(tokens(), src_mask=mask))


@pytest.mark.parametrize("n_last", [1, 3])
def test_last_tokens_are_encoded_as_among_all(n_last):
    made = layer()
    torch.testing.assert_close(made(tokens(), n_last), made(tokens(), LENGTH)[:, -n_last:])
