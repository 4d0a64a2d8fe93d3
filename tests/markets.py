"""Synthetic markets: panels, bars, files and tables."""

import datetime as dt
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import polars as pl

from nvtrader_pipelines.market.calendar import NEW_YORK
from nvtrader_pipelines.market.cleaning import clean
from nvtrader_pipelines.market.features import compute_features
from nvtrader_pipelines.market.ingest import ingest
from nvtrader_pipelines.market.returns import bar_returns
from nvtrader_pipelines.market.sources import LandedFile, LandingSource, MarketSpec
from nvtrader_pipelines.testing.synthetic_panels import (  # noqa: F401 - shared with authors of parts
    FEATURE_NAMES,
    FIRST_SESSION,
    synthetic_panel,
    synthetic_sessions,
    synthetic_symbols,
)

INGESTED_AT = dt.datetime(2024, 1, 2, 22, tzinfo=dt.UTC)


def with_values(panel, name, where, values):
    """Panel with other values in a part of one array."""
    array = getattr(panel, name).copy()
    array[where] = values
    return replace(panel, **{name: array})


class MarketTables(NamedTuple):
    """Tables that the pipeline builds from a set of bars."""

    bars: pl.DataFrame
    deliveries: pl.DataFrame
    clean_bars: pl.DataFrame
    quarantine: pl.DataFrame
    returns: pl.DataFrame
    features: pl.DataFrame


def synthetic_bars(n_sessions=320, n_symbols=3, seed=0, opens=True, volume=True, calendar=NEW_YORK) -> pl.DataFrame:
    """Generate random walks as bars: symbol, date, open, high, low, close, volume, adj_close."""
    generator = np.random.default_rng(seed)
    days = [str(day) for day in synthetic_sessions(n_sessions, calendar=calendar)]
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


def market_tables(*files: LandedFile, now=INGESTED_AT, calendar="XNYS") -> MarketTables:
    """Run landed files through the pipeline, delivered one minute apart."""
    ingested, source = [], LandingSource(calendar=calendar)
    calendars = MarketSpec(sources=(source,)).calendars
    for minutes, file in enumerate(files):
        (delivery,) = source.deliveries([file])
        at = INGESTED_AT + dt.timedelta(minutes=minutes)
        ingested.append(ingest(delivery, None, at, calendars.of(source.name)))
    bars = pl.concat([delivered.bars for delivered in ingested])
    deliveries = pl.concat([delivered.delivery_row for delivered in ingested])
    clean_bars, quarantine = clean(bars, deliveries, now, calendars)
    returns = bar_returns(clean_bars, calendars)
    features = compute_features(returns, calendars=calendars)
    return MarketTables(bars, deliveries, clean_bars, quarantine, returns, features)
