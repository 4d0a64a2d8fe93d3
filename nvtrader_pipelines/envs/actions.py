"""Actions: how a policy's raw numbers become target weights over the names and cash."""

from dataclasses import dataclass
from typing import Annotated, Literal, Protocol

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, NonNegativeFloat, PositiveFloat

from nvtrader_pipelines.components import Component
from nvtrader_pipelines.market.panel import MarketPanel
from nvtrader_pipelines.portfolio.anchors import Anchor, VolatilityTargetAnchor, close_with_cash

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


def softmax(logits: FloatArray) -> FloatArray:
    """Softmax over the last axis, in float64."""
    exponentials = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return exponentials / exponentials.sum(axis=-1, keepdims=True)


class SimplexAction(Component):
    """Logits of the N names and cash; softmax reaches the whole simplex. Ineligible names' weight is cash."""

    kind: Literal["simplex"] = "simplex"
    bound: PositiveFloat = 5.0  # logits lie in [-bound, bound]

    def size(self, n_symbols: int) -> ActionSize:
        """One logit per name and one for cash."""
        return ActionSize(length=n_symbols + 1, bound=self.bound)

    def start(self, panel: MarketPanel) -> ActionMap:
        """The map on one panel."""

        def target_weights(actions: NDArray[np.floating], t: NDArray[np.int64]) -> FloatArray:
            logits = np.clip(np.asarray(actions, dtype=np.float64), -self.bound, self.bound)
            weights = softmax(logits)
            weights[:, :-1] *= panel.eligible[t]
            return close_with_cash(weights)

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

        def target_weights(actions: NDArray[np.floating], t: NDArray[np.int64]) -> FloatArray:
            scores = np.tanh(np.clip(np.asarray(actions, dtype=np.float64), -self.bound, self.bound))
            base = anchor[t]
            tilted = base[:, :-1] * np.exp(self.tilt * scores[:, :-1])
            total = tilted.sum(axis=1, keepdims=True)
            exposure = base[:, :-1].sum(axis=1) * np.exp(self.exposure_tilt * scores[:, -1])
            weights = np.empty_like(base)
            names = np.divide(tilted, total, out=np.zeros_like(tilted), where=total > 0.0)
            weights[:, :-1] = names * np.minimum(1.0, exposure)[:, None]
            return close_with_cash(weights)

        return target_weights


Action = Annotated[SimplexAction | ResidualAction, Field(discriminator="kind")]
