"""Inputs and results of the weight pipeline's stages, and helpers on weights."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import compress
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

from nvtrader_pipelines.components.arrays import order_by_names
from nvtrader_pipelines.components.component import Component
from nvtrader_pipelines.market.panel import MarketPanel, Window
from nvtrader_pipelines.portfolio.cash import CASH, ROUNDING, cash_beside

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]
IntArray = NDArray[np.int64]
MAX_LISTED = 5  # names in a reason


class Thresholds(BaseModel):
    """Thresholds fitted on one training period; None where the timing has no such threshold."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
    turbulence: float | None = None
    drawdown: float | None = None  # loss from the peak, a positive fraction
    trailing_return: float | None = None  # compounded, a fraction
    turnover: float | None = None  # one-way, of one decision


@dataclass(frozen=True, eq=False)
class Situation:
    """Inputs of a decision at the close of session `t`: panel, account and fitted thresholds."""

    panel: MarketPanel
    t: int
    held: FloatArray  # (N+1,) weights at the close, cash last
    drawdown: float  # loss from the account's peak, a positive fraction
    recent_returns: FloatArray  # (S,) the account's net session returns, latest last; 0 before it opened
    thresholds: Thresholds
    rebal_freq: int  # sessions between decisions
    since_loss: IntArray | None = None  # (N,) decisions since each name's last loss, or `NEVER`; None: no name has lost

    def __post_init__(self) -> None:
        """Put held weights with labels in the order of the panel."""
        object.__setattr__(self, "held", order_by_names(self.held, (*self.panel.symbols, CASH), "held weights"))


@dataclass(frozen=True, eq=False)
class AccountPath:
    """Path of an account without timing, opened in cash, over one stretch of the training."""

    net_returns: FloatArray  # (S,) of each session
    drawdown: FloatArray  # (S,) at each close, positive fractions
    turnover: FloatArray  # (D,) one-way, of each decision after the first


class UnfittedTiming(Component):
    """Timing without thresholds."""

    has_guards: ClassVar[bool] = False  # whether it acts only in losses or trades beyond a threshold
    needs_fit: ClassVar[bool] = False  # whether thresholds must be fitted before use
    needs_path: ClassVar[bool] = False  # whether fitting needs an account's path
    history: ClassVar[int] = 0  # earlier sessions of the market that fitting needs

    def require_sessions(self, panel: MarketPanel, windows: Sequence[Window], rebal_freq: int) -> None:
        """Accept any training, since nothing is fitted."""

    def fit(self, panel: MarketPanel, windows: Sequence[Window], paths: Sequence[AccountPath]) -> Thresholds:  # noqa: ARG002
        """Return no thresholds."""
        return Thresholds()


@dataclass(frozen=True, eq=False)
class Selection:
    """Result of a selector, for an allocator."""

    weights: FloatArray  # (N+1,) the proposal, with the weight of other names as cash
    names: BoolArray  # (N,) names that may be held
    exposure: float  # sum of the proposal's names before selection
    is_timed: bool  # whether a timing may scale what the allocator returns


@dataclass(frozen=True, eq=False)
class StageWeights:
    """Weights after one stage."""

    name: str  # policy for the proposal, then the kinds of the stages
    weights: FloatArray  # (N+1,) cash last, sum 1
    reason: str = ""  # what the stage changed and why; empty if nothing


class Guards(NamedTuple):
    """Guards of a timing that fired in a decision, and what they applied."""

    drawdown: bool = False
    negative_return: bool = False
    turnover: bool = False
    scale: float = 1.0  # of the weights
    turnover_penalty: float | None = None  # that replaces the reward's, per unit of turnover; None: no other
    n_shutdown: int = 0  # names cut to the probe
    probe: float | None = None  # largest absolute weight of a name that lost lately; None: no loss shutdown


@dataclass(frozen=True, eq=False)
class PipelineResult:
    """Weights after each stage of a pipeline."""

    stages: tuple[StageWeights, ...]  # the proposal first
    truncated: bool  # whether a limit with mark_truncated cut the weights
    guards: Guards | None = None  # of the timing; None: it has none

    @property
    def weights(self) -> FloatArray:
        """Target weights, (N+1,)."""
        return self.stages[-1].weights


Select = Callable[[Situation], tuple[BoolArray, str]]  # (N,) names that may be held, and why not the others
Allocate = Callable[[Selection, Situation], tuple[FloatArray, str]]  # selected names to weights, and the reason
Adjust = Callable[[FloatArray, Situation], tuple[FloatArray, str]]  # weights to weights; the same array if unchanged
Guard = Callable[[FloatArray, Situation], tuple[FloatArray, str, Guards]]  # the same of a timing with guards


def add_cash(names: FloatArray) -> FloatArray:
    """Append cash to the weights of names (N,), a debt if negative, never one by rounding; (N+1,)."""
    return np.append(names, cash_beside(names))


def scale_exposure(weights: FloatArray, share: float) -> FloatArray:
    """Scale the names' weights by a share; the rest is cash."""
    return add_cash(weights[:-1] * share)


def restrict_to(weights: FloatArray, names: BoolArray) -> FloatArray:
    """Move the weights of other names to cash; returns the same array if there are none."""
    return add_cash(np.where(names, weights[:-1], 0.0)) if weights[:-1][~names].any() else weights


def one_way_turnover(before: FloatArray, after: FloatArray) -> float:
    """Half the sum of absolute changes of weight, cash included."""
    return 0.5 * float(np.abs(after - before).sum())


def move_towards(held: FloatArray, target: FloatArray, share: float) -> FloatArray:
    """Return held + share * (target - held), for a share from 0 to 1."""
    return add_cash(drop_rounding(held[:-1] + share * (target[:-1] - held[:-1])))


def drop_rounding(weights: FloatArray) -> FloatArray:
    """Set weights that are negative by rounding to 0."""
    return np.where((weights >= -ROUNDING) & (weights < 0.0), 0.0, weights)


def gross_exposure(weights: FloatArray) -> float:
    """Sum of absolute weights of the names of weights (N+1,)."""
    return float(np.abs(weights[:-1]).sum())


def format_names(symbols: Sequence[str], chosen: BoolArray) -> str:
    """Format the chosen names as a list, shortened to the first few."""
    names = list(compress(symbols, chosen))
    more = len(names) - MAX_LISTED
    return ", ".join(names[:MAX_LISTED]) + (f" and {more} more" if more > 0 else "")


def require_finite(values: FloatArray, symbols: Sequence[str], name: str) -> None:
    """Raise if values (M,) or (S, M) of the symbols are not finite.

    Raises:
        ValueError: with the symbols of the other values.
    """
    if np.isfinite(values).all():
        return
    known: BoolArray = np.all(np.isfinite(np.atleast_2d(values)), axis=0)
    raise ValueError(
        f"{name} must be finite, but those of {format_names(symbols, ~known)} are not; check the prices and features, "
        "and whether the training diverged"
    )
