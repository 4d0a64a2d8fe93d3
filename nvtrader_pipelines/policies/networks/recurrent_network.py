"""Network of a recurrent encoder."""

from torch import Tensor, nn

from nvtrader_pipelines.envs.observations import ObservationLayout
from nvtrader_pipelines.policies.networks.window_network import WindowEncoder

CELLS: dict[str, type[nn.GRU] | type[nn.LSTM]] = {"gru": nn.GRU, "lstm": nn.LSTM}


class RecurrentEncoder(WindowEncoder):
    """Encoder that returns the last hidden state of a recurrent network."""

    def __init__(self, layout: ObservationLayout, cell: str, hidden_size: int, n_layers: int = 1) -> None:
        super().__init__(hidden_size)
        self.network = CELLS[cell](layout.n_symbols, hidden_size, n_layers, batch_first=True)

    def forward(self, window: Tensor) -> Tensor:
        """Return encodings (n, hidden_size)."""
        states, _ = self.network(window)
        return states[:, -1]
