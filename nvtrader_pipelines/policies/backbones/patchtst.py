"""PatchTST: one transformer reads every name's window in patches, each name by itself."""

from typing import TYPE_CHECKING, Annotated, Literal, Self

from pydantic import Field, PositiveInt, model_validator

from nvtrader_pipelines.envs.observations import ObservationLayout
from nvtrader_pipelines.policies.backbones.backbone import require_divisible
from nvtrader_pipelines.policies.backbones.window import WindowBackbone

if TYPE_CHECKING:
    from nvtrader_pipelines.policies.networks.patchtst import PatchTstEncoder


class PatchTstBackbone(WindowBackbone):
    """PatchTST (Nie et al. 2023): a name's window is cut into patches, and one transformer shared by all reads them.

    Names do not see each other before the heads. Unlike the paper's, windows keep their level and scale, which the
    observation has already scaled by the training period, layers normalise token by token instead of over the batch,
    and a window that patches do not fill begins with sessions of no return instead of repeating its end.
    """

    kind: Literal["patchtst"] = "patchtst"
    patch_length: PositiveInt = 10  # sessions
    stride: PositiveInt = 5  # sessions from one patch's start to the next one's
    d_model: PositiveInt = 8  # columns of a token
    n_heads: PositiveInt = 1
    n_layers: Annotated[int, Field(ge=1, le=8)] = 1
    d_ff: PositiveInt = 16  # hidden columns of the feed-forward network
    name_features: PositiveInt = 4  # columns of a name's encoding

    @model_validator(mode="after")
    def _patches_cover(self) -> Self:
        if self.stride > self.patch_length:
            raise ValueError(
                f"patches must leave no session out, so stride must be at most patch_length, but stride is "
                f"{self.stride} and patch_length {self.patch_length}"
            )
        return self

    @model_validator(mode="after")
    def _heads_share(self) -> Self:
        require_divisible(self.d_model, self.n_heads)
        return self

    def encoder(self, layout: ObservationLayout) -> "PatchTstEncoder":
        """The untrained encoder, drawn from torch's generator."""
        from nvtrader_pipelines.policies.networks.attention import TransformerSizes
        from nvtrader_pipelines.policies.networks.patchtst import PatchTstEncoder

        return PatchTstEncoder(
            layout,
            TransformerSizes(self.d_model, self.n_heads, self.n_layers, self.d_ff),
            patch_length=self.patch_length,
            stride=self.stride,
            name_features=self.name_features,
        )
