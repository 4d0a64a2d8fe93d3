"""Training market in which all names have the same mean return."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from nvtrader_pipelines.market.panel import MarketPanel, Window, window_mask


def demean_panel(panel: MarketPanel, windows: Sequence[Window]) -> MarketPanel:
    """Replace each name's mean log return over the windows by the mean of all names.

    Keeps a policy from memorizing past winners. For training only: it looks ahead within the windows. Highs and lows
    widen to hold the close.
    """
    inside = window_mask(windows, len(panel.sessions))
    growth = np.log1p(panel.close_returns)
    known = panel.tradable[inside]
    counted = known.sum(axis=0)
    own = np.where(known, growth[inside], 0.0).sum(axis=0) / np.maximum(counted, 1)
    common = own[counted > 0].mean()
    shifted = np.expm1(np.where(panel.tradable, growth - own + common, growth))
    highs, lows = panel.high_returns, panel.low_returns
    return replace(
        panel,
        close_returns=shifted,
        high_returns=None if highs is None else np.maximum(highs, shifted),
        low_returns=None if lows is None else np.minimum(lows, shifted),
    )
