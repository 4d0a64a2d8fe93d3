"""Recurrent network over the window's sessions."""

from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field, PositiveInt

from nvtrader_pipelines.envs.observations import ObservationLayout
from nvtrader_pipelines.policies.backbones.window import WindowBackbone

if TYPE_CHECKING:
    from nvtrader_pipelines.policies.networks.recurrent_network import RecurrentEncoder


class RecurrentBackbone(WindowBackbone):
    """GRU (Cho et al. 2014) or LSTM (Hochreiter & Schmidhuber 1997) over the window, session by session.

    The last hidden state is the encoding. The state is reset at each decision, so only the window is remembered.
    """

    kind: Literal["recurrent"] = "recurrent"
    aliases: ClassVar[tuple[str, ...]] = ("RecurrentBackbone",)
    cell: Literal["gru", "lstm"] = "gru"
    hidden_size: PositiveInt = 32  # columns of the encoding
    n_layers: Annotated[PositiveInt, Field(exclude_if=lambda n_layers: n_layers == 1)] = 1

    def encoder(self, layout: ObservationLayout) -> "RecurrentEncoder":
        """Build the untrained encoder with torch's generator."""
        from nvtrader_pipelines.policies.networks.recurrent_network import RecurrentEncoder

        return RecurrentEncoder(layout, self.cell, self.hidden_size, self.n_layers)
