"""Histories of order books as rows of a table."""

from collections.abc import Mapping

import numpy as np
import polars as pl
from numpy.typing import NDArray

from nvtrader_pipelines.components.columns import UTC_TIME, Column, TableSchema
from nvtrader_pipelines.worlds.book_history import N_LEVELS, BookHistory

_LEVELS = pl.List(pl.Float64)
ORDER_BOOK = TableSchema(
    Column("book", pl.String, "name of the landed book"),
    Column("seen_at", UTC_TIME, "time, after the events received by then"),
    Column("bids", _LEVELS, "prices of the best five bids, the best first; a level that is not there repeats the last"),
    Column("bid_sizes", _LEVELS, "sizes of these bids; 0 where there is no level"),
    Column("asks", _LEVELS, "prices of the best five asks, the best first"),
    Column("ask_sizes", _LEVELS, "sizes of these asks"),
    Column("bought", pl.Float64, "size traded by buyers since the time before"),
    Column("sold", pl.Float64, "size traded by sellers since the time before"),
    Column("step_seconds", pl.Float64, "seconds between two times without a gap"),
)


def book_rows(history: BookHistory) -> pl.DataFrame:
    """Rows of `ORDER_BOOK` of a history."""
    arrays = {name: getattr(history, name) for name in ORDER_BOOK if hasattr(history, name)}
    named = {"book": history.source, "step_seconds": history.step / np.timedelta64(1, "s")}
    seen_at = pl.Series("seen_at", history.sessions).dt.replace_time_zone("UTC")
    frame = pl.DataFrame({"seen_at": seen_at, **arrays}).with_columns(
        pl.lit(value).alias(name) for name, value in named.items()
    )
    return frame.select(pl.col(name).cast(dtype) for name, dtype in ORDER_BOOK.items())


def history_of(rows: pl.DataFrame, snapshot_ids: Mapping[str, int]) -> BookHistory:
    """History of rows of one book."""
    rows = rows.sort("seen_at")

    def array(name: str) -> NDArray[np.float64]:
        if rows.schema[name] == _LEVELS:
            return rows[name].explode().to_numpy().reshape(-1, N_LEVELS)
        return rows[name].to_numpy()

    return BookHistory(
        rows["book"][0],
        rows["seen_at"].dt.replace_time_zone(None).dt.cast_time_unit("ns").to_numpy(),
        **{name: array(name) for name in ("bids", "bid_sizes", "asks", "ask_sizes", "bought", "sold")},
        step=np.timedelta64(round(1e6 * rows["step_seconds"][0]), "us"),
        snapshot_ids=snapshot_ids,
    )
