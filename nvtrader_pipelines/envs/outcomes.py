"""Outcomes of positions: what each name earned since a decision, and its share of the cost."""

import numpy as np
from numpy.typing import NDArray

from nvtrader_pipelines.envs.dynamics import HoldingPeriod, Transition
from nvtrader_pipelines.envs.transition import AFTER_FILL, WHOLE

FloatArray = NDArray[np.float64]
MIN_POSITION = 1e-4  # of equity: smaller weights count as not held


def outcomes_of(held: FloatArray, transition: Transition, period: HoldingPeriod) -> FloatArray:
    """Outcomes (3, n, N) of a decision's positions over its period: value, basis and cost, fractions of equity.

    The value is that of the executed position at the end of the period. The basis is its value at the fill, less what
    the position held before earned between the decision and the fill; the two differ by what the name earned, also on
    a short position. The decision's cost is shared by absolute trades: a name that made a third of the traded value
    bears a third of the cost, whatever its own rate. Financing and trades of the cap on gross are left out.

    Args:
        held: (n, N+1) weights at the close of the decision.
        transition: of the decision.
        period: of the transition.
    """
    legs, at = period.legs, period.decided_at + 1
    executed = _positions(transition.executed)
    traded = np.abs(transition.trades[:, :-1])
    total = traded.sum(axis=1)
    cost = traded * (transition.cost / np.where(total > 0.0, total, 1.0))[:, None]
    basis = executed - _positions(held) * legs.before_fill[at]
    value = executed * (1.0 + legs.returns[AFTER_FILL, at])
    for later in range(1, period.n_sessions):
        value = value * (1.0 + legs.returns[WHOLE, at + later])
    return np.stack([value, basis, cost])


def _positions(weights: FloatArray) -> FloatArray:
    """Weights (n, N) of the names of weights (n, N+1), 0 where they are too small to count."""
    names = weights[:, :-1]
    return np.where(np.abs(names) > MIN_POSITION, names, 0.0)
