"""Deliveries whose adjusted closes are on another basis than older bars of their symbol, as after a split."""

import polars as pl

from nvtrader_pipelines.market.calendar import Calendars
from nvtrader_pipelines.market.cleaning import CORRECTED, parse_bars
from nvtrader_pipelines.market.tables import KEY

MIN_SHARED = 2  # bars; the last bar of a delivery is often corrected alone
MIN_CHANGE = 0.01
TOLERANCE = 1e-4  # relative, of the factors of shared bars
_ROW = ["source", "file", "line", "symbol"]
_FILES = ["source", "symbol", "file", "by"]


def basis_changes(
    bars: pl.DataFrame, repeated: pl.DataFrame, clean_bars: pl.DataFrame, calendars: Calendars
) -> pl.DataFrame:
    """Find deliveries that change all bars shared with an earlier file by one factor and lack older bars.

    Args:
        bars: rows of `bronze.bars`; all of the files in `repeated`.
        repeated: rows of `silver.quarantine` that break the rule `duplicate`.
        clean_bars: rows of `silver.clean_bars`.
        calendars: calendars by source.

    Returns:
        `source`, `symbol`, `file`, `by` (the later file), `factor`, `first` (session of a shared bar) and `n_older`.
    """
    rows = parse_bars(bars, calendars).join(repeated.select(*_ROW, "reason"), on=_ROW)
    shared = rows.select(
        "source", "file", "reason", "parsed_adj_close", symbol="parsed_symbol", session="parsed_session"
    ).join(clean_bars.select(*KEY, "adj_close", by="file"), on=KEY)
    is_earlier = pl.col("reason") == CORRECTED  # an identical bar is of the later file
    shared = shared.filter(pl.col("file") != pl.col("by")).with_columns(
        file=pl.when(is_earlier).then("file").otherwise("by"),
        by=pl.when(is_earlier).then("by").otherwise("file"),
        factor=pl.col("adj_close") / pl.col("parsed_adj_close"),
    )
    factor = pl.col("factor").median()
    changes = shared.group_by(_FILES).agg(
        factor=factor, spread=(pl.col("factor") / factor - 1.0).abs().max(), n=pl.len(), first=pl.col("session").min()
    )
    changes = changes.filter(
        pl.col("n") >= MIN_SHARED, pl.col("spread") <= TOLERANCE, (pl.col("factor") - 1.0).abs() > MIN_CHANGE
    )
    older = clean_bars.select(*KEY, of="file").join(changes, on=["source", "symbol"])
    older = older.filter(pl.col("session") < pl.col("first"), pl.col("of") != pl.col("by"))
    counted = older.group_by(*_FILES, "factor", "first").len("n_older").sort(_FILES)
    return counted.unique(["source", "symbol", "by"], keep="first", maintain_order=True)
