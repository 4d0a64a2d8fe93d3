"""Actions: maps from raw actions to target weights of the names and cash."""

from dataclasses import dataclass
from typing import Annotated, Literal, Protocol

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, NonNegativeFloat, PositiveFloat

from nvtrader_pipelines.components.component import Component
from nvtrader_pipelines.components.family import Family
from nvtrader_pipelines.envs.observations.builder import beyond_panel_error
from nvtrader_pipelines.market.panel import MarketPanel
from nvtrader_pipelines.portfolio.anchors import Anchor, VolatilityTargetAnchor

FloatArray = NDArray[np.float64]


class ActionMap(Protocol):
    """Map from raw actions (n, A) and sessions (n,) to target weights (n, N+1), cash last."""

    def __call__(self, actions: NDArray[np.floating], t: NDArray[np.int64]) -> FloatArray:
        """Return rows that sum to 1, with weight on eligible names only."""
        ...


@dataclass(frozen=True)
class ActionSize:
    """Box of raw actions: length, and bound on absolute values."""

    length: int
    bound: float


class SimplexAction(Component):
    """Softmax of logits of the N names and cash; the weight of ineligible names is cash."""

    kind: Literal["simplex"] = "simplex"
    bound: PositiveFloat = 5.0  # logits are in [-bound, bound]

    def size(self, n_symbols: int) -> ActionSize:
        """Box with one logit per name and one for cash."""
        return ActionSize(length=n_symbols + 1, bound=self.bound)

    def start(self, panel: MarketPanel) -> ActionMap:
        """Return the map for one panel."""
        from nvtrader_pipelines.envs.action_loops import normalize_simplex, shift_logits

        eligible = panel.eligible.copy()

        def target_weights(actions: NDArray[np.floating], t: NDArray[np.int64]) -> FloatArray:
            weights = np.array(actions, dtype=np.float64, order="C")
            shift_logits(weights, self.bound)
            np.exp(weights, out=weights)
            if not normalize_simplex(weights, eligible, t):
                raise beyond_panel_error(t, len(eligible))
            return weights

        return target_weights


class ResidualAction(Component):
    """Tilt of an anchor's names and exposure; the zero action is the anchor itself.

    Names: softmax(log anchor + tilt * tanh(a)). Exposure: anchor's * exp(exposure_tilt * tanh(a_cash)), at most 1.
    """

    kind: Literal["residual"] = "residual"
    anchor: Anchor = VolatilityTargetAnchor()
    tilt: PositiveFloat = 1.0  # maximum change of a name's log weight
    exposure_tilt: NonNegativeFloat = 0.25  # maximum change of log exposure; 0 fixes the anchor's
    bound: PositiveFloat = 3.0

    def size(self, n_symbols: int) -> ActionSize:
        """Box with one score per name and one for the exposure."""
        return ActionSize(length=n_symbols + 1, bound=self.bound)

    def start(self, panel: MarketPanel) -> ActionMap:
        """Return the map for one panel; computes the anchor once."""
        from nvtrader_pipelines.envs.action_loops import tilt_anchor

        anchor = self.anchor.weights(panel)
        tilts = np.append(np.full(len(panel.symbols), self.tilt), self.exposure_tilt)

        def target_weights(actions: NDArray[np.floating], t: NDArray[np.int64]) -> FloatArray:
            weights = np.array(actions, dtype=np.float64, order="C")
            np.minimum(np.maximum(weights, -self.bound, out=weights), self.bound, out=weights)
            np.tanh(weights, out=weights)
            weights *= tilts
            np.exp(weights, out=weights)
            if not tilt_anchor(weights, anchor, t):
                raise beyond_panel_error(t, len(anchor))
            return weights

        return target_weights


Action = Annotated[SimplexAction | ResidualAction, Field(discriminator="kind"), Family("actions")]
