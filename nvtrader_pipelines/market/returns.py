"""Simple returns of clean bars: prices are aligned to sessions first, returns come after."""

import polars as pl

from nvtrader_pipelines.market.calendar import session_numbers
from nvtrader_pipelines.market.tables import RETURNS


def bar_returns(clean_bars: pl.DataFrame) -> pl.DataFrame:
    """The returns of every bar (`gold.returns`), sorted by source, symbol and session.

    `close_return` is earned from the previous available close to this one and `overnight_return` from that
    close to this open, both adjusted, as fractions; `span` counts the sessions between the two bars. All
    three are null on a symbol's first bar. A session without a bar has no row: no return is ever filled.
    """
    bars = clean_bars.sort("source", "symbol", "session")
    number = pl.Series("number", session_numbers(bars["session"].to_numpy()))
    aligned = bars.with_columns(number, adj_open=pl.col("open") * pl.col("adj_close") / pl.col("close"))
    name = ["source", "symbol"]
    before = pl.col("adj_close").shift(1).over(name)
    rows = aligned.with_columns(
        close_return=pl.col("adj_close") / before - 1.0,
        overnight_return=pl.col("adj_open") / before - 1.0,
        span=pl.col("number").diff().over(name),
    )
    return rows.select(pl.col(column).cast(kind) for column, kind in RETURNS.items())
