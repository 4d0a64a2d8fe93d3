"""Simple returns of clean bars, of prices aligned to sessions first; and where bars are missing."""

from collections.abc import Sequence

import polars as pl

from nvtrader_pipelines.market.calendar import all_sessions, session_numbers
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


def calendar_gaps(returns: pl.DataFrame) -> pl.DataFrame:
    """Where a symbol has no bar between two of its own: the sessions from `first` to `last` (`n_sessions`).

    Args:
        returns: rows of `gold.returns`: source, symbol, session and span.
    """
    after = returns.filter(pl.col("span") > 1).sort("source", "symbol", "session")
    number, span = session_numbers(after["session"].to_numpy()), after["span"].to_numpy()
    return after.select(
        "source",
        "symbol",
        pl.Series("first", all_sessions()[number - span + 1]),
        pl.Series("last", all_sessions()[number - 1]),
        (pl.col("span") - 1).alias("n_sessions"),
    )


def told_gaps(gaps: pl.DataFrame, max_gap: int) -> Sequence[str]:
    """What `calendar_gaps` found, a sentence each, and what follows from it where gaps up to `max_gap` are borne."""
    if gaps.is_empty():
        return ["no symbol misses a session between its first and its last bar"]
    told = [
        f"{source}: {symbol} has no bar on {n} session{'s' if n > 1 else ''}, "
        + (f"{first} to {last}" if n > 1 else str(first))
        for source, symbol, first, last, n in gaps.iter_rows()
    ]
    borne = f"up to {max_gap} sessions are borne: the name is not traded in them, and its next bar has the whole return"
    if (gaps["n_sessions"] <= max_gap).all():
        return [*told, f"nothing need be done: {borne}"]
    return [*told, f"{borne}; where there are more, deliver the missing bars, raise max_gap, or leave the symbol out"]
