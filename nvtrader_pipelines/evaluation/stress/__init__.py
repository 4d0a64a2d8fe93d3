"""Stress scenarios: each turns the unstressed market into one or several stressed markets."""

from typing import Annotated

from pydantic import Field

from nvtrader_pipelines.components.family import Family
from nvtrader_pipelines.evaluation.stress.resampling import BootstrappedWindow
from nvtrader_pipelines.evaluation.stress.shocks import FlashCrash, Gap
from nvtrader_pipelines.evaluation.stress.windows import HistoricWindow

StressScenario = Annotated[
    Gap | FlashCrash | BootstrappedWindow | HistoricWindow, Field(discriminator="kind"), Family("stresses")
]

__all__ = ["BootstrappedWindow", "FlashCrash", "Gap", "HistoricWindow", "StressScenario"]
