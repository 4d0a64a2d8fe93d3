"""A training market in which no name did better than the others."""

from dataclasses import replace

import numpy as np

from nvtrader_pipelines.market.panel import MarketPanel


def demeaned(panel: MarketPanel, first: int, last: int) -> MarketPanel:
    """The panel with each name's mean log return over `first..last` replaced by the mean of all names.

    Keeps a policy from learning which names won. Only for training: it knows the whole window.
    """
    window = slice(first, last + 1)
    growth = np.log1p(panel.close_returns)
    known = panel.tradable[window]
    counted = known.sum(axis=0)
    own = np.where(known, growth[window], 0.0).sum(axis=0) / np.maximum(counted, 1)
    common = own[counted > 0].mean()
    shifted = np.expm1(np.where(panel.tradable, growth - own + common, growth))
    return replace(panel, close_returns=shifted)
