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
