"""Stress scenarios: a family of what may go wrong, each turning a calm market into worlds to be judged in."""

from typing import Annotated

from pydantic import Field

from nvtrader_pipelines.evaluation.stress.resampling import BlockBootstrap
from nvtrader_pipelines.evaluation.stress.shocks import (
    CorrelationToOne,
    FlashCrash,
    Gap,
    MissingData,
    OneNameToZero,
    VolatilityTimes,
)
from nvtrader_pipelines.evaluation.stress.windows import CostTimes, HistoricWindow

StressScenario = Annotated[
    Gap
    | FlashCrash
    | OneNameToZero
    | CorrelationToOne
    | VolatilityTimes
    | MissingData
    | CostTimes
    | BlockBootstrap
    | HistoricWindow,
    Field(discriminator="kind"),
]

__all__ = [
    "BlockBootstrap",
    "CorrelationToOne",
    "CostTimes",
    "FlashCrash",
    "Gap",
    "HistoricWindow",
    "MissingData",
    "OneNameToZero",
    "StressScenario",
    "VolatilityTimes",
]
