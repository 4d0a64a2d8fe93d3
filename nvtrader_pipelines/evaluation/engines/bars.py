"""Bars of adjusted prices, built from the returns of a panel."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from nvtrader_pipelines.envs.account import Account
from nvtrader_pipelines.market.panel import MarketPanel

FloatArray = NDArray[np.float64]
BASE_PRICE = 100.0  # of a name before its first session, where no first close is given


class Bar(NamedTuple):
    """Last closed bar, and the account at its close."""

    session: np.datetime64
    opens: FloatArray  # (N,)
    highs: FloatArray  # (N,)
    lows: FloatArray  # (N,)
    closes: FloatArray  # (N,)
    account: Account


@dataclass(frozen=True, eq=False)
class Bars:
    """Adjusted prices of S sessions; a name without a price has its last known one."""

    sessions: NDArray[np.datetime64]  # (S,)
    opens: FloatArray  # (S, N); the close where the market has no opens
    highs: FloatArray  # (S, N)
    lows: FloatArray  # (S, N)
    closes: FloatArray  # (S, N)

    def history(self, t: int, n: int) -> Self:
        """Return copies of the last `n` bars up to session `t`; fewer where the market begins later."""
        rows = slice(max(0, t + 1 - n), t + 1)
        return type(self)(*(getattr(self, field.name)[rows].copy() for field in fields(self)))


def market_bars(panel: MarketPanel, first_closes: Mapping[str, float] | None = None) -> Bars:
    """Build the bars of a panel, scaled to given closes of its first session.

    Raises:
        ValueError: if a first close is of a name that the panel lacks.
    """
    base, factors = np.full(len(panel.symbols), BASE_PRICE), 1.0 + panel.close_returns
    for symbol, close in (first_closes or {}).items():
        if symbol not in panel.symbols:
            raise ValueError(f"first_closes must be of names of the market, but {symbol!r} is none; remove it")
        j = panel.symbols.index(symbol)
        base[j] = close / factors[0, j]
    closes = base * np.cumprod(factors, axis=0)
    before = np.vstack([base, closes[:-1]])
    opens = closes if panel.overnight_returns is None else before * (1.0 + panel.overnight_returns)
    highs = np.maximum(opens, closes) if panel.high_returns is None else before * (1.0 + panel.high_returns)
    lows = np.minimum(opens, closes) if panel.low_returns is None else before * (1.0 + panel.low_returns)
    return Bars(panel.sessions, opens, highs, lows, closes)
