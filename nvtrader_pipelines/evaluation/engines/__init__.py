"""Engines of back-tests: given weights in one pass, a walk by a policy, and orders of a strategy."""

from typing import Annotated

from pydantic import Field

from nvtrader_pipelines.components.family import Family
from nvtrader_pipelines.evaluation.engines.bars import Bar
from nvtrader_pipelines.evaluation.engines.engine import Engine, EventDriven, Vectorized, Walk
from nvtrader_pipelines.evaluation.engines.strategy import (
    LimitReversion,
    RebalanceStrategy,
    RLAgentBridge,
    Strategy,
    StrategyContext,
    StrategyFunction,
)

BacktestEngine = Annotated[Vectorized | Walk | EventDriven, Field(discriminator="kind"), Family("engines")]
BacktestStrategy = Annotated[RebalanceStrategy | LimitReversion, Field(discriminator="kind"), Family("strategies")]
BaseBacktestEngine = Engine

__all__ = [
    "BacktestEngine",
    "BacktestStrategy",
    "Bar",
    "BaseBacktestEngine",
    "Engine",
    "EventDriven",
    "LimitReversion",
    "RLAgentBridge",
    "RebalanceStrategy",
    "Strategy",
    "StrategyContext",
    "StrategyFunction",
    "Vectorized",
    "Walk",
]
