"""Small random markets: without events, and with gaps, late listings and delistings."""

import datetime as dt
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from nvtrader_pipelines.market.calendar import NEW_YORK, TradingCalendar
from nvtrader_pipelines.market.features import FEATURES
from nvtrader_pipelines.market.panel import MarketPanel

FIRST_SESSION = dt.date(2015, 1, 2)
FEATURE_NAMES = tuple(feature.name for feature in FEATURES)
STEADY, GAPPY, LATE, DELISTED, INELIGIBLE, NEVER = range(6)  # columns of an eventful panel
LISTED_AT, FIRST_ELIGIBLE, GAP, LAST_PRICE, MAX_GAP = 40, 50, (30, 33), 60, 5
_NAMES = ("AAA", "BBB", "CCC", "DDD", "EEE", "FFF", "GGG", "HHH")


def synthetic_symbols(n_symbols: int) -> tuple[str, ...]:
    """Symbols in the order of a panel."""
    return _NAMES[:n_symbols] if n_symbols <= len(_NAMES) else tuple(f"N{i:03d}" for i in range(n_symbols))


def synthetic_sessions(
    n_sessions: int, first: dt.date = FIRST_SESSION, calendar: TradingCalendar = NEW_YORK
) -> NDArray[np.datetime64]:
    """Sessions of a calendar from `first`, as (T,) days."""
    return calendar.sessions(first, dt.date(2049, 12, 31))[:n_sessions].copy()


def synthetic_panel(
    n_sessions: int = 600,
    n_symbols: int = 4,
    seed: int = 0,
    *,
    opens: bool = True,
    volume: bool = True,
    calendar: TradingCalendar = NEW_YORK,
) -> MarketPanel:
    """Build a panel of random walks that trade on every session; its features are noise.

    Without opens, it has neither highs nor lows.
    """
    generator = np.random.default_rng(seed)
    names = FEATURE_NAMES if volume else tuple(name for name in FEATURE_NAMES if "volume" not in name)
    shape = (n_sessions, n_symbols)
    everywhere = np.ones(shape, dtype=bool)
    features = generator.normal(0.0, 0.1, (*shape, len(names)))
    for k, name in enumerate(names):
        if name.startswith("volatility"):
            features[:, :, k] = generator.uniform(0.008, 0.02, shape)
    closes = generator.normal(0.0004, 0.012, shape)
    overnight = generator.normal(0.0002, 0.005, shape) if opens else None
    high, low = (np.exp(sign * generator.exponential(0.004, shape)) for sign in (1.0, -1.0))
    return MarketPanel(
        source="synthetic",
        sessions=synthetic_sessions(n_sessions, calendar=calendar),
        symbols=synthetic_symbols(n_symbols),
        close_returns=closes,
        overnight_returns=overnight,
        high_returns=None if overnight is None else (1.0 + np.maximum(overnight, closes)) * high - 1.0,
        low_returns=None if overnight is None else (1.0 + np.minimum(overnight, closes)) * low - 1.0,
        tradable=everywhere,
        delisted=~everywhere,
        eligible=everywhere,
        features=features,
        feature_names=names,
        calendar=calendar,
    )


def eventful_panel(
    n_sessions: int = 160, seed: int = 0, *, opens: bool = True, calendar: TradingCalendar = NEW_YORK
) -> MarketPanel:
    """Build a panel of six names: steady, gappy, listed late, delisted, ineligible, unpriced."""
    panel = synthetic_panel(n_sessions, 6, seed, opens=opens, calendar=calendar)
    tradable = panel.tradable.copy()
    tradable[GAP[0] : GAP[1], GAPPY] = False
    tradable[:LISTED_AT, LATE] = False
    tradable[LAST_PRICE + 1 :, DELISTED] = False
    tradable[:, NEVER] = False
    eligible = tradable.copy()
    eligible[:FIRST_ELIGIBLE, LATE] = False
    eligible[:, INELIGIBLE] = False
    delisted = np.zeros_like(tradable)
    delisted[LAST_PRICE + MAX_GAP + 1 :, DELISTED] = True
    earns = tradable.copy()
    earns[LISTED_AT, LATE] = False  # nothing is earned before the first price
    names = ("close_returns", "overnight_returns", "high_returns", "low_returns")
    arrays = {name: getattr(panel, name) for name in names}
    returns = {name: None if array is None else np.where(earns, array, 0.0) for name, array in arrays.items()}
    return replace(
        panel,
        **returns,
        tradable=tradable,
        delisted=delisted,
        eligible=eligible,
        features=np.where(eligible[:, :, None], panel.features, 0.0),
    )


def simplex(generator: np.random.Generator, n: int, n_symbols: int) -> NDArray[np.float64]:
    """Draw random weights (n, N+1), cash last."""
    return generator.dirichlet(np.full(n_symbols + 1, 0.5), n)
