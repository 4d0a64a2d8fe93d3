"""Rewards: a family of terms whose weighted sum is the reward; every contribution is logged."""

from typing import Annotated

from pydantic import Field

from nvtrader_pipelines.envs.rewards.growth import BenchmarkRelative, LogGrowth
from nvtrader_pipelines.envs.rewards.risk import CvarExcess, VolatilityPenalty
from nvtrader_pipelines.envs.rewards.term import RewardFunction, StepOutcome

RewardTerm = Annotated[LogGrowth | BenchmarkRelative | VolatilityPenalty | CvarExcess, Field(discriminator="kind")]

__all__ = [
    "BenchmarkRelative",
    "CvarExcess",
    "LogGrowth",
    "RewardFunction",
    "RewardTerm",
    "StepOutcome",
    "VolatilityPenalty",
]
