"""Bars of adjusted prices, built from the returns of a panel."""

from collections.abc import Mapping
from datetime import date
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nvtrader_pipelines.components.arrays import FloatArray
from nvtrader_pipelines.envs.account import Account
from nvtrader_pipelines.market.panel import MarketPanel

BASE_PRICE = 100.0  # of a name before the panel's first session, where its first close is not given


class Bar(NamedTuple):
    """Last closed bar, and the account at its close."""

    session: date
    open: FloatArray  # (N,)
    high: FloatArray  # (N,)
    low: FloatArray  # (N,)
    close: FloatArray  # (N,)
    account: Account


class Bars(NamedTuple):
    """Adjusted prices of S sessions; a name without a price has its last known one."""

    sessions: NDArray[np.datetime64]  # (S,)
    opens: FloatArray  # (S, N); the close where the market has no opens
    highs: FloatArray  # (S, N)
    lows: FloatArray  # (S, N)
    closes: FloatArray  # (S, N)

    def history(self, t: int, n: int) -> "Bars":
        """Return copies of the last `n` bars up to session `t`; fewer where the market begins later."""
        rows, (sessions, *prices) = slice(max(0, t + 1 - n), t + 1), self
        return Bars(sessions[rows].copy(), *(price[rows].copy() for price in prices))


def market_bars(panel: MarketPanel, first_closes: Mapping[str, float]) -> Bars:
    """Build the bars of a panel, some names scaled to given closes of its first session.

    Raises:
        ValueError: if a first close is of a name that the panel lacks.
    """
    unknown = sorted(set(first_closes) - set(panel.symbols))
    if unknown:
        raise ValueError(f"first_closes must be of names of the market, but it has no {unknown[0]}; remove it")
    factors = 1.0 + panel.close_returns
    firsts = [first_closes.get(symbol, BASE_PRICE * factors[0, j]) for j, symbol in enumerate(panel.symbols)]
    closes = np.cumprod(np.vstack([firsts, factors[1:]]), axis=0).astype(np.float64)
    before = np.vstack([closes[0] / factors[0], closes[:-1]])
    opens = closes if panel.overnight_returns is None else before * (1.0 + panel.overnight_returns)
    highs = np.maximum(opens, closes) if panel.high_returns is None else before * (1.0 + panel.high_returns)
    lows = np.minimum(opens, closes) if panel.low_returns is None else before * (1.0 + panel.low_returns)
    return Bars(panel.sessions, opens, highs, lows, closes)
