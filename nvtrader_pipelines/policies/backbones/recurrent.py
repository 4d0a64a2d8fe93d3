"""A recurrent network over the window's sessions."""

from typing import TYPE_CHECKING, Literal

from pydantic import PositiveInt

from nvtrader_pipelines.envs.observations import ObservationLayout
from nvtrader_pipelines.policies.backbones.window import WindowBackbone

if TYPE_CHECKING:
    from nvtrader_pipelines.policies.networks.recurrent import RecurrentEncoder


class RecurrentBackbone(WindowBackbone):
    """A GRU (Cho et al. 2014) or LSTM (Hochreiter & Schmidhuber 1997) reads the window session by session.

    Its last hidden state is the encoding. It starts anew at each decision, so it remembers the window and no more.
    """

    kind: Literal["recurrent"] = "recurrent"
    cell: Literal["gru", "lstm"] = "gru"
    hidden_size: PositiveInt = 32  # columns of the encoding

    def encoder(self, layout: ObservationLayout) -> "RecurrentEncoder":
        """The untrained encoder, drawn from torch's generator."""
        from nvtrader_pipelines.policies.networks.recurrent import RecurrentEncoder

        return RecurrentEncoder(layout, self.cell, self.hidden_size)
