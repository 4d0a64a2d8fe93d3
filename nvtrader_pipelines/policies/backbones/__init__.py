"""Backbones: the family of networks below the heads of actor and critic."""

from typing import Annotated

from pydantic import Field

from nvtrader_pipelines.components.family import Family
from nvtrader_pipelines.policies.backbones.autoencoder import AutoencoderBackbone
from nvtrader_pipelines.policies.backbones.backbone import MlpBackbone
from nvtrader_pipelines.policies.backbones.eiie import EiieConvBackbone
from nvtrader_pipelines.policies.backbones.forecasts import InvestorsBackbone, SarlLstmBackbone
from nvtrader_pipelines.policies.backbones.patchtst import PatchTstBackbone
from nvtrader_pipelines.policies.backbones.recurrent import RecurrentBackbone
from nvtrader_pipelines.policies.backbones.sagcn import SagcnBackbone
from nvtrader_pipelines.policies.backbones.shared_asset import SharedAssetBackbone
from nvtrader_pipelines.policies.backbones.transformer import TransformerBackbone

Backbone = Annotated[
    MlpBackbone
    | SharedAssetBackbone
    | RecurrentBackbone
    | TransformerBackbone
    | PatchTstBackbone
    | AutoencoderBackbone
    | SarlLstmBackbone
    | InvestorsBackbone
    | EiieConvBackbone
    | SagcnBackbone,
    Field(discriminator="kind"),
    Family("backbones"),
]

__all__ = [
    "AutoencoderBackbone",
    "Backbone",
    "EiieConvBackbone",
    "InvestorsBackbone",
    "MlpBackbone",
    "PatchTstBackbone",
    "RecurrentBackbone",
    "SagcnBackbone",
    "SarlLstmBackbone",
    "SharedAssetBackbone",
    "TransformerBackbone",
]
