"""Actions: how a policy's raw numbers become target weights over the names and cash."""

from dataclasses import dataclass
from typing import Annotated, Literal, Protocol

import numpy as np
from numba import njit
from numpy.typing import NDArray
from pydantic import Field, NonNegativeFloat, PositiveFloat

from nvtrader_pipelines.components.component import Component
from nvtrader_pipelines.envs.observations.builder import no_such_session
from nvtrader_pipelines.market.panel import MarketPanel
from nvtrader_pipelines.portfolio.anchors import Anchor, VolatilityTargetAnchor

FloatArray = NDArray[np.float64]


class ActionMap(Protocol):
    """Raw actions (n, A) and their sessions (n,) to target weights (n, N+1), cash last."""

    def __call__(self, actions: NDArray[np.floating], t: NDArray[np.int64]) -> FloatArray:
        """Rows sum to 1; only eligible names get weight."""
        ...


@dataclass(frozen=True)
class ActionSize:
    """The box of raw actions."""

    length: int
    bound: float


class SimplexAction(Component):
    """Logits of the N names and cash; softmax reaches the whole simplex. Ineligible names' weight is cash."""

    kind: Literal["simplex"] = "simplex"
    bound: PositiveFloat = 5.0  # logits lie in [-bound, bound]

    def size(self, n_symbols: int) -> ActionSize:
        """One logit per name and one for cash."""
        return ActionSize(length=n_symbols + 1, bound=self.bound)

    def start(self, panel: MarketPanel) -> ActionMap:
        """The map on one panel."""
        eligible = panel.eligible.copy()

        def target_weights(actions: NDArray[np.floating], t: NDArray[np.int64]) -> FloatArray:
            weights = np.array(actions, dtype=np.float64, order="C")
            _below_the_largest(weights, self.bound)
            np.exp(weights, out=weights)
            if not _simplex(weights, eligible, t):
                raise no_such_session(t, len(eligible))
            return weights

        return target_weights


class ResidualAction(Component):
    """A tilt of the names around an anchor, and of its exposure; the zero action is the anchor itself.

    Names: softmax(log anchor + tilt * tanh(a)). Exposure: anchor's * exp(exposure_tilt * tanh(a_cash)), at most 1.
    """

    kind: Literal["residual"] = "residual"
    anchor: Anchor = VolatilityTargetAnchor()
    tilt: PositiveFloat = 1.0  # largest change of a name's log weight
    exposure_tilt: NonNegativeFloat = 0.25  # largest change of log exposure; 0 keeps the anchor's
    bound: PositiveFloat = 3.0

    def size(self, n_symbols: int) -> ActionSize:
        """One score per name and one for the exposure."""
        return ActionSize(length=n_symbols + 1, bound=self.bound)

    def start(self, panel: MarketPanel) -> ActionMap:
        """The map on one panel; the anchor is computed once."""
        anchor = self.anchor.weights(panel)
        tilts = np.append(np.full(len(panel.symbols), self.tilt), self.exposure_tilt)

        def target_weights(actions: NDArray[np.floating], t: NDArray[np.int64]) -> FloatArray:
            weights = np.array(actions, dtype=np.float64, order="C")
            np.minimum(np.maximum(weights, -self.bound, out=weights), self.bound, out=weights)
            np.tanh(weights, out=weights)
            weights *= tilts
            np.exp(weights, out=weights)
            if not _tilted(weights, anchor, t):
                raise no_such_session(t, len(anchor))
            return weights

        return target_weights


@njit(cache=True)
def _below_the_largest(logits: FloatArray, bound: float) -> None:
    """Bring logits (n, N+1) within the bound and take off the row's largest, so that no exponential overflows."""
    for i in range(len(logits)):
        row, largest = logits[i], -bound
        for j in range(len(row)):
            within = row[j]
            if within < -bound:
                within = -bound
            if within > bound:
                within = bound
            row[j] = within  # a NaN stays one, for the account to find
            largest = max(largest, within)
        for j in range(len(row)):
            row[j] -= largest


@njit(cache=True)
def _simplex(weights: FloatArray, eligible: NDArray[np.bool_], t: NDArray[np.int64]) -> bool:
    """Make weights of exponentials (n, N+1); False if a session is not one of the panel's."""
    cash = weights.shape[1] - 1
    for i in range(len(weights)):  # a pass of its own, so that all rows' masks are fetched at once
        if t[i] < 0 or t[i] >= len(eligible):
            return False
        row, may_hold = weights[i], eligible[t[i]]
        total = row[cash]
        for j in range(cash):
            total += row[j]
            row[j] *= may_hold[j]
        row[cash] = 1.0 / total
    for i in range(len(weights)):
        row, names, share = weights[i], 0.0, weights[i, cash]
        for j in range(cash):
            row[j] *= share
        for j in range(cash):
            names += row[j]
        row[cash] = _left(names)
    return True


@njit(cache=True)
def _tilted(weights: FloatArray, anchor: FloatArray, t: NDArray[np.int64]) -> bool:
    """Make weights of factors (n, N+1) on the anchor's; False if a session is not one of the panel's."""
    cash = weights.shape[1] - 1
    for i in range(len(weights)):
        if t[i] < 0 or t[i] >= len(anchor):
            return False
        row, base = weights[i], anchor[t[i]]
        total, exposure, names = 0.0, 0.0, 0.0
        for j in range(cash):
            row[j] *= base[j]
            total += row[j]
            exposure += base[j]
        exposure *= row[cash]
        share = min(exposure, 1.0) / total if total != 0.0 else 0.0
        for j in range(cash):
            row[j] *= share
        for j in range(cash):
            names += row[j]
        row[cash] = _left(names)
    return True


@njit(cache=True)
def _left(names: float) -> float:
    """What the names leave to cash, never below 0 by rounding; NaN for a NaN."""
    left = 1.0 - names
    return max(left, 0.0)


Action = Annotated[SimplexAction | ResidualAction, Field(discriminator="kind")]
