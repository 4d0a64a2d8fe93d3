"""Past returns for estimates: rows up to the decision, of names listed throughout."""

from itertools import compress
from typing import NamedTuple

import numpy as np

from nvtrader_pipelines.market.panel import MarketPanel
from nvtrader_pipelines.portfolio.pipeline.stage import BoolArray, FloatArray, require_finite


class Past(NamedTuple):
    """Past returns of an estimate."""

    returns: FloatArray  # (history, M) simple session returns, up to and including those of session `at`
    names: BoolArray  # (N,) the M names
    at: int


class EstimationWindow:
    """Window of `history` sessions that ends at the last multiple of `every` sessions.

    Between two multiples the returns are the same, so that callers may cache results.
    """

    def __init__(self, panel: MarketPanel, history: int, every: int) -> None:
        self._panel, self._history, self._every = panel, history, every
        known = panel.tradable.any(axis=0)
        self._listed_at = np.where(known, panel.tradable.argmax(axis=0), len(panel.sessions))  # (N,) first price

    def past(self, selected: BoolArray, t: int) -> Past | None:
        """Return the past of selected names (N,) listed by the window's start; None if none was.

        Raises:
            ValueError: if a return is not finite.
        """
        at = t - t % self._every
        first = at + 1 - self._history
        names = selected & (self._listed_at <= first)
        if not names.any():
            return None
        returns = np.ascontiguousarray(self._panel.close_returns[first : at + 1, names])
        require_finite(returns, list(compress(self._panel.symbols, names)), f"returns up to {self._panel.sessions[at]}")
        return Past(returns, names, at)
