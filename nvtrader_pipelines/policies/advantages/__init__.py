"""Advantages: the family of advantage estimators on grouped episodes."""

from typing import Annotated

from pydantic import Field

from nvtrader_pipelines.components.family import Family
from nvtrader_pipelines.policies.advantages.episodes import Episodes, Estimate
from nvtrader_pipelines.policies.advantages.gae import GaeAdvantage
from nvtrader_pipelines.policies.advantages.outcome_advantages import GrpoAdvantage, ReinforcePlusPlusAdvantage

Advantage = Annotated[
    GaeAdvantage | GrpoAdvantage | ReinforcePlusPlusAdvantage, Field(discriminator="kind"), Family("advantages")
]

__all__ = ["Advantage", "Episodes", "Estimate", "GaeAdvantage", "GrpoAdvantage", "ReinforcePlusPlusAdvantage"]
