"""Small network shared by all names."""

from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import PositiveInt

from nvtrader_pipelines.policies.backbones.backbone import NameScoresBackbone

if TYPE_CHECKING:
    from nvtrader_pipelines.policies.networks.shared_asset_network import SharedAssetPolicy


class SharedAssetBackbone(NameScoresBackbone):
    """Small shared network that scores each name from its own columns and the context.

    It needs the per-asset observation. Scores are centered across names and the last layers start near zero, so a
    residual policy starts at its anchor.
    """

    observations: ClassVar[tuple[str, ...]] = ("per_asset",)

    kind: Literal["shared_asset"] = "shared_asset"
    asset_hidden: tuple[PositiveInt, PositiveInt] = (16, 8)
    context_hidden: PositiveInt = 16
    critic_hidden: PositiveInt = 32

    def policy_class(self) -> "type[SharedAssetPolicy]":
        """SB3 policy class, whose network has the fields as sizes."""
        from nvtrader_pipelines.policies.networks.shared_asset_network import SharedAssetPolicy

        return SharedAssetPolicy
