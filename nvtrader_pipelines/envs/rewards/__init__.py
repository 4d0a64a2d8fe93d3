"""Rewards: a family of terms whose weighted sum is the reward."""

from typing import Annotated

from pydantic import Field

from nvtrader_pipelines.components.family import Family
from nvtrader_pipelines.envs.rewards.differential import DifferentialDownside, DifferentialSharpe
from nvtrader_pipelines.envs.rewards.foresight import DpDistillation, Hindsight
from nvtrader_pipelines.envs.rewards.growth import BenchmarkRelative, ExponentialUtility, LogGrowth
from nvtrader_pipelines.envs.rewards.risk import CvarExcess, DrawdownPenalty, VolatilityPenalty
from nvtrader_pipelines.envs.rewards.term import RewardFunction, StepOutcome
from nvtrader_pipelines.envs.rewards.trading import ImplementationShortfall, RunningInventory, TurnoverPenalty

RewardTerm = Annotated[
    LogGrowth
    | BenchmarkRelative
    | ExponentialUtility
    | DifferentialSharpe
    | DifferentialDownside
    | VolatilityPenalty
    | CvarExcess
    | DrawdownPenalty
    | TurnoverPenalty
    | ImplementationShortfall
    | RunningInventory
    | Hindsight
    | DpDistillation,
    Field(discriminator="kind"),
    Family("rewards"),
]

__all__ = [
    "BenchmarkRelative",
    "CvarExcess",
    "DifferentialDownside",
    "DifferentialSharpe",
    "DpDistillation",
    "DrawdownPenalty",
    "ExponentialUtility",
    "Hindsight",
    "ImplementationShortfall",
    "LogGrowth",
    "RewardFunction",
    "RewardTerm",
    "RunningInventory",
    "StepOutcome",
    "TurnoverPenalty",
    "VolatilityPenalty",
]
