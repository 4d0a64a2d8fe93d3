"""Engines of back-tests: given weights in one pass, a walk by a policy, and orders of a strategy."""

from typing import Annotated

from pydantic import Field

from nvtrader_pipelines.components.family import Family
from nvtrader_pipelines.evaluation.engines.bars import Bar, Bars
from nvtrader_pipelines.evaluation.engines.engine import Engine
from nvtrader_pipelines.evaluation.engines.engine_account import EngineAccount, EngineResult
from nvtrader_pipelines.evaluation.engines.event_driven import EventDriven
from nvtrader_pipelines.evaluation.engines.strategy import (
    LimitReversion,
    RebalanceStrategy,
    RLAgentBridge,
    Strategy,
    StrategyContext,
    StrategyFunction,
)
from nvtrader_pipelines.evaluation.engines.transition_engines import Vectorized, Walk

BacktestEngine = Annotated[Vectorized | Walk | EventDriven, Field(discriminator="kind"), Family("engines")]
BacktestStrategy = Annotated[RebalanceStrategy | LimitReversion, Field(discriminator="kind"), Family("strategies")]
BaseBacktestEngine = Engine

__all__ = [
    "BacktestEngine",
    "BacktestStrategy",
    "Bar",
    "Bars",
    "BaseBacktestEngine",
    "Engine",
    "EngineAccount",
    "EngineResult",
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
