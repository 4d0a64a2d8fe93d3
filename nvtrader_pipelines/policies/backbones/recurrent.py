"""A recurrent network over the window's sessions."""

from typing import Literal

from pydantic import PositiveInt
from torch import Tensor, nn

from nvtrader_pipelines.envs.observations import ObservationLayout
from nvtrader_pipelines.policies.backbones.window import WindowBackbone, WindowEncoder

CELLS: dict[str, type[nn.GRU] | type[nn.LSTM]] = {"gru": nn.GRU, "lstm": nn.LSTM}


class RecurrentBackbone(WindowBackbone):
    """A GRU (Cho et al. 2014) or LSTM (Hochreiter & Schmidhuber 1997) reads the window session by session.

    Its last hidden state is the encoding. It starts anew at each decision, so it remembers the window and no more.
    """

    kind: Literal["recurrent"] = "recurrent"
    cell: Literal["gru", "lstm"] = "gru"
    hidden_size: PositiveInt = 32  # columns of the encoding

    def encoder(self, layout: ObservationLayout) -> "RecurrentEncoder":
        """The untrained encoder, drawn from torch's generator."""
        return RecurrentEncoder(layout, self)


class RecurrentEncoder(WindowEncoder):
    """The last hidden state of a recurrent network."""

    def __init__(self, layout: ObservationLayout, backbone: RecurrentBackbone) -> None:
        super().__init__(backbone.hidden_size)
        self.network = CELLS[backbone.cell](layout.n_symbols, backbone.hidden_size, batch_first=True)

    def forward(self, window: Tensor) -> Tensor:
        """Encodings (n, hidden_size)."""
        states, _ = self.network(window)
        return states[:, -1]
