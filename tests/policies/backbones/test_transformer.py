import numpy as np
import pytest
import torch
from pydantic import ValidationError
from torch import nn

from nvtrader_pipelines.policies.backbones import TransformerBackbone
from nvtrader_pipelines.policies.networks.transformer_network import sinusoids
from tests.policies.backbones.networks import LOOKBACK, extractor_of, observed


@pytest.mark.parametrize("n_layers", [1, 2, 3])
def test_transformer_encoding_matches_torch(n_layers):
    extractor = extractor_of(TransformerBackbone(d_model=8, n_heads=4, n_layers=n_layers, d_ff=12))
    encoder, window = extractor.encoder, extractor.window(observed())
    layer = nn.TransformerEncoderLayer(8, 4, 12, dropout=0.0, batch_first=True, norm_first=True)
    own = nn.TransformerEncoder(layer, n_layers, nn.LayerNorm(8), enable_nested_tensor=False)
    own.load_state_dict({n: t for n, t in encoder.state_dict().items() if not n.startswith("embedding")})
    causal = nn.Transformer.generate_square_subsequent_mask(LOOKBACK)
    expected = own(encoder.embedding(window) + encoder.positions, mask=causal)[:, -1]
    torch.testing.assert_close(encoder(window), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("d_model", [6, 7])
def test_positions_match_the_sinusoid_definition(d_model):
    expected = np.empty((9, d_model))
    for position in range(9):
        for column in range(d_model):
            angle = position / 10_000 ** (2 * (column // 2) / d_model)
            expected[position, column] = np.cos(angle) if column % 2 else np.sin(angle)
    np.testing.assert_allclose(sinusoids(9, d_model).numpy(), expected, atol=1e-6)


def test_positions_and_mask_are_not_stored_in_the_state_dict():
    assert not {"positions", "mask"} & extractor_of(TransformerBackbone()).encoder.state_dict().keys()


def test_heads_that_do_not_divide_d_model_are_invalid():
    with pytest.raises(ValidationError):
        TransformerBackbone(n_heads=5)
