"""What a stage of the weight pipeline may know, and what it leaves behind."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

from nvtrader_pipelines.market.panel import MarketPanel

FloatArray = NDArray[np.float64]


class Thresholds(BaseModel):
    """What a timing was fitted to on one training period; None where it has no such threshold."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
    turbulence: float | None = None
    drawdown: float | None = None  # loss from the peak, a positive fraction
    trailing_return: float | None = None  # compounded, a fraction
    turnover: float | None = None  # one-way, of one decision


@dataclass(frozen=True, eq=False)
class Situation:
    """The close of session `t`: the panel's rows up to it, the account, and what was fitted before."""

    panel: MarketPanel
    t: int
    held: FloatArray  # (N+1,) weights at the close, cash last
    drawdown: float  # loss from the account's peak, a positive fraction
    recent_returns: FloatArray  # (S,) the account's net session returns, the latest last; 0 before it opened
    thresholds: Thresholds


@dataclass(frozen=True, eq=False)
class StageWeights:
    """Weights after one stage."""

    name: str  # policy for what was proposed, then the kinds of the stages
    weights: FloatArray  # (N+1,) cash last, sum 1
    reason: str = ""  # what the stage changed and why; empty where it changed nothing


@dataclass(frozen=True, eq=False)
class PipelineResult:
    """What became of a proposal, stage by stage."""

    stages: tuple[StageWeights, ...]  # the proposal first
    truncated: bool  # whether a limit that marks it cut the weights

    @property
    def weights(self) -> FloatArray:
        """The target weights, (N+1,)."""
        return self.stages[-1].weights


Select = Callable[[Situation], tuple[NDArray[np.bool_], str]]  # (N,) names that may be held, and the reason
Allocate = Callable[[FloatArray, NDArray[np.bool_], Situation], tuple[FloatArray, str]]  # proposal and names to weights
Adjust = Callable[[FloatArray, Situation], tuple[FloatArray, str]]  # weights to weights; the same array if unchanged
