"""Differential Sharpe and downside deviation ratios: the effect of one more return."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, PositiveFloat

from nvtrader_pipelines.components.component import Component
from nvtrader_pipelines.envs.rewards.term import RewardFunction, StepOutcome
from nvtrader_pipelines.market.panel import MarketPanel

FloatArray = NDArray[np.float64]
Rate = Annotated[float, Field(gt=0.0, le=0.5)]  # per session
MIN_VARIANCE = 1e-8  # squared session return, (1 basis point)^2; below, ratios are undefined


def differential_sharpe(returns: FloatArray, mean: FloatArray, square: FloatArray) -> FloatArray:
    """Derivative of A / sqrt(B - A^2) by the rate, at the next return R; 0 if B nears A^2.

    D = (B * (R - A) - A * (R^2 - B) / 2) / (B - A^2)^(3/2), with the moving moments A and B from before R.

    Source: Moody & Saffell (2001), the differential Sharpe ratio.
    """
    variance = square - mean**2
    defined = variance > MIN_VARIANCE
    change = square * (returns - mean) - 0.5 * mean * (returns**2 - square)
    safe = np.where(defined, variance, 1.0)
    return np.where(defined, change / (safe * np.sqrt(safe)), 0.0)


def differential_downside(returns: FloatArray, mean: FloatArray, square: FloatArray) -> FloatArray:
    """Derivative of A / DD by the rate of A and DD^2, at the next return R; 0 if DD^2 is near 0.

    D = (R - A / 2) / DD for R > 0, else (DD^2 * (R - A / 2) - A * R^2 / 2) / DD^3, with A and DD from before R.

    Source: Moody & Saffell (2001), the downside deviation ratio.
    """
    defined = square > MIN_VARIANCE
    safe = np.where(defined, square, 1.0)
    losses = np.minimum(returns, 0.0)
    change = safe * (returns - 0.5 * mean) - 0.5 * mean * losses**2
    return np.where(defined, change / (safe * np.sqrt(safe)), 0.0)


@dataclass(frozen=True)
class _Ratio:
    """Formulas of one of the two ratios."""

    differential: Callable[[FloatArray, FloatArray, FloatArray], FloatArray]
    square: Callable[[FloatArray], FloatArray]  # contribution of a return to the second moment


_SHARPE = _Ratio(differential_sharpe, lambda returns: returns**2)
_DOWNSIDE = _Ratio(differential_downside, lambda returns: np.minimum(returns, 0.0) ** 2)


class DifferentialSharpe(Component):
    """Differential Sharpe ratio of each net session return, summed over the step.

    Moments move by A += eta * (R - A) and B += eta * (R^2 - B), and start at A = 0 and B = initial_volatility^2 in
    each episode. A session whose B - A^2 is at most (1 basis point)^2 counts as 0. Source: Moody & Saffell (2001).
    """

    kind: Literal["differential_sharpe"] = "differential_sharpe"
    weight: PositiveFloat = 1.0
    eta: Rate = 0.01
    initial_volatility: Annotated[float, Field(ge=1e-3, le=1.0)] = 0.01  # per session

    def start(self, panel: MarketPanel, n_accounts: int) -> RewardFunction:  # noqa: ARG002 - one signature
        """Return the term for n accounts."""
        return _MovingRatio(self, _SHARPE, n_accounts)


class DifferentialDownside(Component):
    """Differential downside deviation ratio (D3R) of net session returns, summed over the step.

    Moments move by A += eta * (R - A) and DD^2 += eta * (min(R, 0)^2 - DD^2), and start at A = 0 and
    DD = initial_volatility in each episode. A session whose DD^2 is at most (1 basis point)^2 counts as 0.
    Source: Moody & Saffell (2001).
    """

    kind: Literal["differential_downside"] = "differential_downside"
    weight: PositiveFloat = 1.0
    eta: Rate = 0.01
    initial_volatility: Annotated[float, Field(ge=1e-3, le=1.0)] = 0.01  # of losses, per session

    def start(self, panel: MarketPanel, n_accounts: int) -> RewardFunction:  # noqa: ARG002 - one signature
        """Return the term for n accounts."""
        return _MovingRatio(self, _DOWNSIDE, n_accounts)


class _MovingRatio:
    """Moving moments of n accounts."""

    def __init__(self, term: DifferentialSharpe | DifferentialDownside, ratio: _Ratio, n_accounts: int) -> None:
        self._term, self._ratio = term, ratio
        self._mean = np.zeros(n_accounts)
        self._square = np.full(n_accounts, term.initial_volatility**2)

    def __call__(self, outcome: StepOutcome) -> FloatArray:
        """Compute the contributions (n,) of one step."""
        eta, total = self._term.eta, np.zeros(len(self._mean))
        for returns in (outcome.transition.session_growth - 1.0).T:
            total += self._ratio.differential(returns, self._mean, self._square)
            self._mean = self._mean + eta * (returns - self._mean)
            self._square = self._square + eta * (self._ratio.square(returns) - self._square)
        return self._term.weight * total

    def reset(self, rows: Sequence[int]) -> None:
        """Reset the moments of the accounts `rows`, which begin an episode."""
        self._mean[list(rows)] = 0.0
        self._square[list(rows)] = self._term.initial_volatility**2

    def state(self) -> dict[str, NDArray[Any]]:
        """Copies of the moments."""
        return {"mean": self._mean.copy(), "square": self._square.copy()}

    def restore(self, state: dict[str, NDArray[Any]]) -> None:
        """Continue from a `state`."""
        self._mean, self._square = state["mean"].copy(), state["square"].copy()
