"""Stress scenarios: each turns the unstressed market into one or several stressed markets."""

from typing import Annotated

from pydantic import Field

from nvtrader_pipelines.components.family import Family
from nvtrader_pipelines.evaluation.stress.resampling import BootstrappedWindow
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
    | BootstrappedWindow
    | HistoricWindow,
    Field(discriminator="kind"),
    Family("stresses"),
]

__all__ = [
    "BootstrappedWindow",
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
