import pytest
import torch
from pydantic import ValidationError
from torch import nn

from nvtrader_pipelines.policies.backbones import RecurrentBackbone
from tests.policies.backbones.networks import LOOKBACK, N, extractor_of, observed


def unrolled(network, window):
    """The last hidden state, one session after the other through torch's cells."""
    cell = {nn.GRU: nn.GRUCell, nn.LSTM: nn.LSTMCell}[type(network)](N, network.hidden_size)
    cell.load_state_dict({name.removesuffix("_l0"): tensor for name, tensor in network.state_dict().items()})
    state = None
    for session in range(LOOKBACK):
        state = cell(window[:, session], state)
    return state[0] if isinstance(state, tuple) else state


@pytest.mark.parametrize("cell", ["gru", "lstm"])
def test_recurrent_encoding_is_the_state_after_the_last_session(cell):
    extractor = extractor_of(RecurrentBackbone(cell=cell, hidden_size=6))
    window = extractor.window(observed())
    encoding = extractor.encoder(window)
    assert encoding.shape == (4, 6)
    torch.testing.assert_close(encoding, unrolled(extractor.encoder.network, window), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("field", "value"), [("cell", "rnn"), ("hidden_size", 0)])
def test_unknown_cell_or_empty_state_is_invalid(field, value):
    with pytest.raises(ValidationError):
        RecurrentBackbone.model_validate({field: value})
