"""Columns of the market's tables."""

import polars as pl

from nvtrader_pipelines.components.columns import UTC_TIME, Column, TableSchema

PRICES = ("open", "high", "low", "close", "adj_close")
NUMBERS = ("open", "high", "low", "close", "volume", "adj_close")
KEY = ("source", "symbol", "session")

BAR = TableSchema(  # what the tables of clean bars and of what is computed from them begin with
    Column("source", pl.String, "which source delivered the bar"),
    Column("symbol", pl.String, "name of the instrument"),
    Column("session", pl.Date, "session of the source's calendar"),
    Column("year", pl.Int32, "year of the session; the partition"),
)
_FILE = Column("file", pl.String, "delivered file")
_LINE = Column("line", pl.Int64, "line or row in the file, from 1")
_INGESTED_AT = Column("ingested_at", UTC_TIME, "when the file was ingested")
_NAMED = TableSchema(Column("symbol", pl.String, "symbol as delivered"), Column("date", pl.String, "date as delivered"))
_NUMBERS_AS_DELIVERED = TableSchema(
    Column("open", pl.String, "opening price as delivered"),
    Column("high", pl.String, "highest price as delivered"),
    Column("low", pl.String, "lowest price as delivered"),
    Column("close", pl.String, "closing price as delivered"),
    Column("volume", pl.String, "volume as delivered"),
    Column("adj_close", pl.String, "adjusted close as delivered"),
)
# What a file says about a bar: text as delivered, null where it says nothing, and its line.
DELIVERED = TableSchema(_LINE, _NAMED, _NUMBERS_AS_DELIVERED)
BARS = TableSchema(
    BAR.only("source"),
    Column("year", pl.Int32, "year of the session, or of the delivery where the date cannot be read; the partition"),
    _FILE,
    _LINE,
    Column("digest", pl.String, "SHA-256 of the delivered file"),
    _NAMED,
    _NUMBERS_AS_DELIVERED,
    _INGESTED_AT,
)
DELIVERIES = TableSchema(
    Column("source", pl.String, "which source delivered the file"),
    _FILE,
    Column("digest", pl.String, "SHA-256 of the file"),
    Column("size", pl.Int64, "size of the file in bytes; 0 if it was refused before it was opened"),
    Column("n_rows", pl.Int64, "rows in the file"),
    Column("years", pl.List(pl.Int32), "years of its rows in `bronze.bars`"),
    Column("rule", pl.String, "why the whole file was refused, if it was"),
    Column("reason", pl.String, "the same as a sentence"),
    Column("calendar", pl.String, "calendar of the source; null of outside series, and of old deliveries, then XNYS"),
    _INGESTED_AT,
    Column("guessed_symbol", pl.String, "symbol in the file's name, if no row names one"),
    Column("unused_columns", pl.List(pl.String), "columns of the file that are not read"),
)
CLEAN_BARS = TableSchema(
    BAR,
    Column("open", pl.Float64, "opening price, as traded"),
    Column("high", pl.Float64, "highest price, as traded"),
    Column("low", pl.Float64, "lowest price, as traded"),
    Column("close", pl.Float64, "closing price, as traded"),
    Column("volume", pl.Float64, "shares traded"),
    Column("adj_close", pl.Float64, "close adjusted for splits and dividends"),
    _FILE,
    Column("line", pl.Int64, "line or row in the file"),
)
QUARANTINE = TableSchema(
    Column("source", pl.String, "which source delivered the row"),
    Column("year", pl.Int32, "year of the bronze row; the partition"),
    _FILE,
    Column("line", pl.Int64, "line or row in the file; 0 for the whole file"),
    _NAMED,
    Column("rule", pl.String, "the first rule the row breaks"),
    Column("value", pl.String, "the offending value as delivered"),
    Column("reason", pl.String, "what must hold, what was found"),
)
SERIES = TableSchema(
    Column("symbol", pl.String, "name the value is of; empty for the whole market"),
    Column("field", pl.String, "field the value is of, such as vix or pe"),
    Column("published", pl.Date, "day of publication; without a time, the value is known from the next session on"),
    Column("published_at", UTC_TIME, "time of publication; null where only the day is known"),
    Column("value", pl.Float64, "value, in the unit of the file"),
    _FILE,
    _LINE,
)
RETURNS = TableSchema(
    BAR,
    Column("adj_open", pl.Float64, "opening price adjusted like the close"),
    Column("adj_high", pl.Float64, "highest price adjusted like the close; null where the bar has none"),
    Column("adj_low", pl.Float64, "lowest price adjusted like the close; null where the bar has none"),
    Column("adj_close", pl.Float64, "adjusted close"),
    Column("close_return", pl.Float64, "simple return from the previous bar's close; null on the first bar"),
    Column("overnight_return", pl.Float64, "simple return from the previous close to this open; null without opens"),
    Column("span", pl.Int32, "sessions since the previous bar; 1 without a gap"),
    CLEAN_BARS.only("volume"),
)
REGIMES = TableSchema(
    Column("source", pl.String, "source of the market"),
    BAR.only("session"),
    Column("regime", pl.String, "strong_down, weak_down, sideways or strong_up; looks ahead, so never to decide by"),
    Column("segment", pl.Int32, "number of the segment between turning points, 0 first; known only afterwards"),
    Column("slope", pl.Float64, "slope of the segment's filtered log index per session; known only afterwards"),
    Column("market_return", pl.Float64, "mean close return of the source's names; 0 on the first session"),
    Column("index_level", pl.Float64, "equally weighted index, 1 before the first session"),
)
PANELS = TableSchema(
    Column("source", pl.String, "source of the panel"),
    Column("calendar", pl.String, "calendar of its sessions; null before calendars were recorded: XNYS"),
    Column("first_session", pl.Date, "first session with an eligible symbol"),
    Column("last_session", pl.Date, "last session"),
    Column("n_sessions", pl.Int64, "number of sessions, first and last included"),
    Column("n_symbols", pl.Int64, "number of symbols"),
    Column("symbols", pl.List(pl.String), "symbols in the panel's order"),
    Column("feature_names", pl.List(pl.String), "features in the panel's order"),
    Column("digest", pl.String, "SHA-256 of the panel's arrays"),
    Column("returns_snapshot_id", pl.Int64, "snapshot of gold.returns it is made of"),
    Column("features_snapshot_id", pl.Int64, "snapshot of gold.features it is made of"),
    Column("clean_bars_snapshot_id", pl.Int64, "snapshot of silver.clean_bars behind them"),
    Column("bars_snapshot_id", pl.Int64, "snapshot of bronze.bars behind them"),
    Column("series_snapshot_id", pl.Int64, "snapshot of silver.series beside them; null before series were delivered"),
    Column("built_at", UTC_TIME, "when the row was written"),
)
