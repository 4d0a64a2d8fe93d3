"""Which past returns an allocator estimates on: rows up to the decision, of names that were listed all along."""

from itertools import compress
from typing import NamedTuple

import numpy as np

from nvtrader_pipelines.market.panel import MarketPanel
from nvtrader_pipelines.portfolio.pipeline.stage import BoolArray, FloatArray, check_finite


class Past(NamedTuple):
    """Returns to estimate on."""

    returns: FloatArray  # (history, M) simple session returns, up to and including those of session `at`
    names: BoolArray  # (N,) the M names they are of
    at: int


class EstimationWindow:
    """The `history` sessions up to the panel's last multiple of `every` sessions, the decision's own included.

    Between two multiples the same returns are asked for again, so a solution of them may be remembered.
    """

    def __init__(self, panel: MarketPanel, history: int, every: int) -> None:
        self._panel, self._history, self._every = panel, history, every
        known = panel.tradable.any(axis=0)
        self._listed_at = np.where(known, panel.tradable.argmax(axis=0), len(panel.sessions))  # (N,) first price

    def past(self, selected: BoolArray, t: int) -> Past | None:
        """Of the selected names (N,) those with a price since the window's first session; None where there is none.

        Raises:
            ValueError: if a return is not finite.
        """
        at = t - t % self._every
        first = at + 1 - self._history
        names = selected & (self._listed_at <= first)
        if not names.any():
            return None
        returns = np.ascontiguousarray(self._panel.close_returns[first : at + 1, names])
        check_finite(returns, list(compress(self._panel.symbols, names)), f"returns up to {self._panel.sessions[at]}")
        return Past(returns, names, at)
