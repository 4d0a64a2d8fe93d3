"""Transformer over the window's sessions."""

from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, Self

from pydantic import Field, PositiveInt, model_validator

from nvtrader_pipelines.envs.observations import ObservationLayout
from nvtrader_pipelines.policies.backbones.backbone import require_divisible
from nvtrader_pipelines.policies.backbones.window import WindowBackbone

if TYPE_CHECKING:
    from nvtrader_pipelines.policies.networks.transformer_network import TransformerEncoder


class TransformerBackbone(WindowBackbone):
    """Causal transformer encoder with sinusoidal positions over the sessions (Vaswani et al. 2017).

    Each session is a token and attends to itself and earlier ones; the last session's token is the encoding.
    """

    kind: Literal["transformer"] = "transformer"
    aliases: ClassVar[tuple[str, ...]] = ("TransformerBackbone",)
    d_model: PositiveInt = 32  # columns of a token, and of the encoding
    n_heads: PositiveInt = 2
    n_layers: Annotated[int, Field(ge=1, le=8)] = 1
    d_ff: PositiveInt = 64  # hidden columns of the feed-forward network

    @model_validator(mode="after")
    def _require_equal_heads(self) -> Self:
        require_divisible(self.d_model, self.n_heads)
        return self

    def encoder(self, layout: ObservationLayout) -> "TransformerEncoder":
        """Build the untrained encoder with torch's generator."""
        from nvtrader_pipelines.policies.networks.attention import TransformerSizes
        from nvtrader_pipelines.policies.networks.transformer_network import TransformerEncoder

        return TransformerEncoder(layout, TransformerSizes(self.d_model, self.n_heads, self.n_layers, self.d_ff))
