"""Columns of the market's tables, as polars schemas."""

import polars as pl

TIMESTAMP = pl.Datetime("us", "UTC")
PRICES = ("open", "high", "low", "close", "adj_close")
NUMBERS = ("open", "high", "low", "close", "volume", "adj_close")
KEY = ("source", "symbol", "session")

# A bar in a delivered file: its line, and the text as delivered, null where absent.
DELIVERED = pl.Schema({"line": pl.Int64, "symbol": pl.String, "date": pl.String, **dict.fromkeys(NUMBERS, pl.String)})
BARS = pl.Schema(
    {
        "source": pl.String,
        "year": pl.Int32,
        "file": pl.String,
        "line": pl.Int64,
        "digest": pl.String,
        "symbol": pl.String,
        "date": pl.String,
        **dict.fromkeys(NUMBERS, pl.String),
        "ingested_at": TIMESTAMP,
    }
)
DELIVERIES = pl.Schema(
    {
        "source": pl.String,
        "file": pl.String,
        "digest": pl.String,
        "size": pl.Int64,
        "n_rows": pl.Int64,
        "years": pl.List(pl.Int32),
        "rule": pl.String,
        "reason": pl.String,
        "ingested_at": TIMESTAMP,
    }
)
CLEAN_BARS = pl.Schema(
    {
        "source": pl.String,
        "symbol": pl.String,
        "session": pl.Date,
        "year": pl.Int32,
        **dict.fromkeys(NUMBERS, pl.Float64),
        "file": pl.String,
        "line": pl.Int64,
    }
)
QUARANTINE = pl.Schema(
    {
        "source": pl.String,
        "year": pl.Int32,
        "file": pl.String,
        "line": pl.Int64,
        "symbol": pl.String,
        "date": pl.String,
        "rule": pl.String,
        "value": pl.String,
        "reason": pl.String,
    }
)
RETURNS = pl.Schema(
    {
        "source": pl.String,
        "symbol": pl.String,
        "session": pl.Date,
        "year": pl.Int32,
        "adj_open": pl.Float64,
        "adj_close": pl.Float64,
        "close_return": pl.Float64,
        "overnight_return": pl.Float64,
        "span": pl.Int32,
        "volume": pl.Float64,
    }
)
REGIMES = pl.Schema(
    {
        "source": pl.String,
        "session": pl.Date,
        "regime": pl.String,
        "segment": pl.Int32,
        "slope": pl.Float64,
        "market_return": pl.Float64,
        "index_level": pl.Float64,
    }
)
PANELS = pl.Schema(
    {
        "source": pl.String,
        "first_session": pl.Date,
        "last_session": pl.Date,
        "n_sessions": pl.Int64,
        "n_symbols": pl.Int64,
        "symbols": pl.List(pl.String),
        "feature_names": pl.List(pl.String),
        "digest": pl.String,
        "returns_snapshot_id": pl.Int64,
        "features_snapshot_id": pl.Int64,
        "clean_bars_snapshot_id": pl.Int64,
        "bars_snapshot_id": pl.Int64,
        "built_at": TIMESTAMP,
    }
)
