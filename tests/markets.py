"""Synthetic markets: panels, bars, files and tables."""

import datetime as dt
from typing import NamedTuple

import numpy as np
import polars as pl

from nvtrader_pipelines.market.calendar import sessions
from nvtrader_pipelines.market.cleaning import clean
from nvtrader_pipelines.market.features import FEATURES, compute_features
from nvtrader_pipelines.market.ingest import ingest
from nvtrader_pipelines.market.panel import MarketPanel
from nvtrader_pipelines.market.returns import bar_returns
from nvtrader_pipelines.market.sources import LandedFile, LandingSource

FIRST_SESSION = dt.date(2015, 1, 2)
INGESTED_AT = dt.datetime(2024, 1, 2, 22, tzinfo=dt.UTC)
TODAY = INGESTED_AT.date()
FEATURE_NAMES = tuple(feature.name for feature in FEATURES)
_NAMES = ("AAA", "BBB", "CCC", "DDD", "EEE", "FFF", "GGG", "HHH")


class MarketTables(NamedTuple):
    """Tables that the pipeline builds from a set of bars."""

    bars: pl.DataFrame
    deliveries: pl.DataFrame
    clean_bars: pl.DataFrame
    quarantine: pl.DataFrame
    returns: pl.DataFrame
    features: pl.DataFrame


def synthetic_symbols(n_symbols) -> tuple[str, ...]:
    """Symbols in the order of a panel."""
    return _NAMES[:n_symbols] if n_symbols <= len(_NAMES) else tuple(f"N{i:03d}" for i in range(n_symbols))


def synthetic_sessions(n_sessions, first=FIRST_SESSION) -> np.ndarray:
    """Sessions of the exchange from `first`, as (T,) days."""
    return sessions(first, dt.date(2049, 12, 31))[:n_sessions].copy()


def synthetic_panel(n_sessions=600, n_symbols=4, seed=0, opens=True, volume=True) -> MarketPanel:
    """Build a panel of random walks that trade on every session; its features are noise."""
    generator = np.random.default_rng(seed)
    names = FEATURE_NAMES if volume else tuple(name for name in FEATURE_NAMES if "volume" not in name)
    shape = (n_sessions, n_symbols)
    everywhere = np.ones(shape, dtype=bool)
    features = generator.normal(0.0, 0.1, (*shape, len(names)))
    for k, name in enumerate(names):
        if name.startswith("volatility"):
            features[:, :, k] = generator.uniform(0.008, 0.02, shape)
    return MarketPanel(
        source="synthetic",
        sessions=synthetic_sessions(n_sessions),
        symbols=synthetic_symbols(n_symbols),
        close_returns=generator.normal(0.0004, 0.012, shape),
        overnight_returns=generator.normal(0.0002, 0.005, shape) if opens else None,
        tradable=everywhere,
        delisted=~everywhere,
        eligible=everywhere,
        features=features,
        feature_names=names,
    )


def synthetic_bars(n_sessions=320, n_symbols=3, seed=0, opens=True, volume=True) -> pl.DataFrame:
    """Generate random walks as bars: symbol, date, open, high, low, close, volume, adj_close."""
    generator = np.random.default_rng(seed)
    days = [str(day) for day in synthetic_sessions(n_sessions)]
    parts = []
    for symbol in synthetic_symbols(n_symbols):
        close = 50.0 * np.exp(np.cumsum(generator.normal(0.0003, 0.012, n_sessions)))
        open_ = close * np.exp(generator.normal(0.0, 0.004, n_sessions))
        columns = {
            "symbol": [symbol] * n_sessions,
            "date": days,
            "open": open_ if opens else None,
            "high": np.maximum(open_, close) * 1.003 if opens else None,
            "low": np.minimum(open_, close) * 0.997 if opens else None,
            "close": close,
            "volume": generator.integers(10_000, 90_000, n_sessions).astype(float) if volume else None,
            "adj_close": close * np.linspace(0.9, 1.0, n_sessions),
        }
        kinds = {name: pl.String if name in {"symbol", "date"} else pl.Float64 for name in columns}
        parts.append(pl.DataFrame(columns, schema=kinds))
    return pl.concat(parts)


def csv_file(bars: pl.DataFrame, name="prices.csv") -> LandedFile:
    """Write the bars to a file of the landing zone."""
    return LandedFile(name, bars.write_csv().encode())


def market_tables(*files: LandedFile, today=TODAY) -> MarketTables:
    """Run landed files through the pipeline, delivered one minute apart."""
    ingested = []
    for minutes, file in enumerate(files):
        (delivery,) = LandingSource().deliveries([file])
        ingested.append(ingest(delivery, None, INGESTED_AT + dt.timedelta(minutes=minutes)))
    bars = pl.concat([delivered.bars for delivered in ingested])
    deliveries = pl.concat([delivered.delivery_row for delivered in ingested])
    clean_bars, quarantine = clean(bars, deliveries, today)
    returns = bar_returns(clean_bars)
    return MarketTables(bars, deliveries, clean_bars, quarantine, returns, compute_features(returns))
