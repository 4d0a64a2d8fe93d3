"""Observations: the family of a policy's inputs at a close."""

from typing import Annotated

from pydantic import Field

from nvtrader_pipelines.components.family import Family
from nvtrader_pipelines.envs.observations.builder import ObservationBuilder, ObservationLayout, ObservationScaler
from nvtrader_pipelines.envs.observations.lookback import LookbackObservation
from nvtrader_pipelines.envs.observations.per_asset import PerAssetObservation
from nvtrader_pipelines.envs.observations.regime import RegimeObservation

Observation = Annotated[
    LookbackObservation | PerAssetObservation | RegimeObservation, Field(discriminator="kind"), Family("observations")
]

__all__ = [
    "LookbackObservation",
    "Observation",
    "ObservationBuilder",
    "ObservationLayout",
    "ObservationScaler",
    "PerAssetObservation",
    "RegimeObservation",
]
