"""PatchTST: one transformer encodes every name's window in patches, independently of other names."""

from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, Self

from pydantic import Field, PositiveInt, model_validator

from nvtrader_pipelines.envs.observations import ObservationLayout
from nvtrader_pipelines.policies.backbones.backbone import require_divisible
from nvtrader_pipelines.policies.backbones.window import WindowBackbone

if TYPE_CHECKING:
    from nvtrader_pipelines.policies.networks.patchtst_network import PatchTstEncoder


class PatchTstBackbone(WindowBackbone):
    """PatchTST (Nie et al. 2023): each name's window is cut into patches for one shared transformer.

    Names interact only in the heads. Unlike in the paper, windows are not normalized per instance, since observations
    are already scaled by the training period; layers normalize per token instead of over the batch; and a window that
    patches do not fill is padded with zero returns at its start instead of repeating its end.
    """

    kind: Literal["patchtst"] = "patchtst"
    aliases: ClassVar[tuple[str, ...]] = ("PatchTSTBackbone",)
    patch_length: PositiveInt = 10  # sessions
    stride: PositiveInt = 5  # sessions between the starts of two patches
    d_model: PositiveInt = 8  # columns of a token
    n_heads: PositiveInt = 1
    n_layers: Annotated[int, Field(ge=1, le=8)] = 1
    d_ff: PositiveInt = 16  # hidden columns of the feed-forward network
    name_features: PositiveInt = 4  # columns of a name's encoding

    @model_validator(mode="after")
    def _require_coverage(self) -> Self:
        if self.stride > self.patch_length:
            raise ValueError(
                f"stride must be at most patch_length, or patches leave sessions out, but stride is {self.stride} and "
                f"patch_length {self.patch_length}; change one"
            )
        return self

    @model_validator(mode="after")
    def _require_equal_heads(self) -> Self:
        require_divisible(self.d_model, self.n_heads)
        return self

    def encoder(self, layout: ObservationLayout) -> "PatchTstEncoder":
        """Build the untrained encoder with torch's generator."""
        from nvtrader_pipelines.policies.networks.attention import TransformerSizes
        from nvtrader_pipelines.policies.networks.patchtst_network import PatchTstEncoder

        return PatchTstEncoder(
            layout,
            TransformerSizes(self.d_model, self.n_heads, self.n_layers, self.d_ff),
            patch_length=self.patch_length,
            stride=self.stride,
            name_features=self.name_features,
        )
