"""What a stage of the weight pipeline may know, and what it leaves behind."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import compress

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

from nvtrader_pipelines.market.panel import MarketPanel

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]
ROUNDING = 1e-9  # by which a weight or a sum of weights may miss what it must be, in every check
MOST_LISTED = 5  # names in a reason


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
class AccountPath:
    """What the unadjusted pipeline's own account, opened in cash, did over one stretch of the training."""

    net_returns: FloatArray  # (S,) of each session
    drawdown: FloatArray  # (S,) at each close, positive fractions
    turnover: FloatArray  # (D,) one-way, of each decision after the first


@dataclass(frozen=True, eq=False)
class Selection:
    """What a selector leaves an allocator."""

    weights: FloatArray  # (N+1,) the proposal with what it gave to other names in cash
    names: BoolArray  # (N,) that may be held
    exposure: float  # sum of the proposal's names, before any was dropped


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


Select = Callable[[Situation], tuple[BoolArray, str]]  # (N,) names that may be held, and what the others are
Allocate = Callable[[Selection, Situation], tuple[FloatArray, str]]  # selected names to weights, and how
Adjust = Callable[[FloatArray, Situation], tuple[FloatArray, str]]  # weights to weights; the same array if unchanged


def with_cash(names: FloatArray) -> FloatArray:
    """Weights (N+1,) of names (N,) and the cash they leave, never below 0 by rounding."""
    return np.append(names, max(0.0, 1.0 - names.sum()))


def scaled(weights: FloatArray, share: float) -> FloatArray:
    """A share of the names' weights; the rest is cash."""
    return with_cash(weights[:-1] * share)


def only(weights: FloatArray, names: BoolArray) -> FloatArray:
    """The weights with those of other names in cash; the same array where there are none."""
    return with_cash(np.where(names, weights[:-1], 0.0)) if weights[:-1][~names].any() else weights


def one_way(before: FloatArray, after: FloatArray) -> float:
    """One-way turnover: half the sum of absolute changes of weight, cash included."""
    return 0.5 * float(np.abs(after - before).sum())


def part_way(held: FloatArray, target: FloatArray, share: float) -> FloatArray:
    """Weights held + share * (target - held), for a share from 0 to 1."""
    return with_cash(np.maximum(0.0, held[:-1] + share * (target[:-1] - held[:-1])))


def listed(symbols: Sequence[str], chosen: BoolArray) -> str:
    """The chosen names in words, the first few of many."""
    names = list(compress(symbols, chosen))
    more = len(names) - MOST_LISTED
    return ", ".join(names[:MOST_LISTED]) + (f" and {more} more" if more > 0 else "")


def check_finite(values: FloatArray, symbols: Sequence[str], what: str) -> None:
    """See that the values (M,) or (S, M) of the symbols are finite.

    Raises:
        ValueError: if one is not, with its symbol.
    """
    if np.isfinite(values).all():
        return
    known: BoolArray = np.all(np.isfinite(np.atleast_2d(values)), axis=0)
    raise ValueError(
        f"{what} must be finite, but of {listed(symbols, ~known)} they are not; look at the prices and features there, "
        "or for a training that diverged"
    )
