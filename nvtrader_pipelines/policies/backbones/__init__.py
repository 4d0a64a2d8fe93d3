"""Backbones: a family of networks under actor and critic."""

from typing import Annotated

from pydantic import Field

from nvtrader_pipelines.policies.backbones.mlp import MlpBackbone
from nvtrader_pipelines.policies.backbones.shared_asset import SharedAssetBackbone

Backbone = Annotated[MlpBackbone | SharedAssetBackbone, Field(discriminator="kind")]

__all__ = ["Backbone", "MlpBackbone", "SharedAssetBackbone"]
