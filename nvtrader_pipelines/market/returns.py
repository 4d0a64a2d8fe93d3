"""Simple returns of clean bars, and gaps between bars."""

from collections.abc import Sequence

import numpy as np
import polars as pl

from nvtrader_pipelines.components.text import group_by_message
from nvtrader_pipelines.market.calendar import ALL_NEW_YORK, Calendars, TradingCalendar
from nvtrader_pipelines.market.tables import RETURNS


def bar_returns(clean_bars: pl.DataFrame, calendars: Calendars = ALL_NEW_YORK) -> pl.DataFrame:
    """Compute the returns of every bar (`gold.returns`), sorted by source, symbol and session.

    `close_return` is earned from the previous available close to this one and `overnight_return` from that close to
    this open, both adjusted, as fractions; `span` is the number of sessions from the previous bar to this one. All
    three are null on a symbol's first bar. A session without a bar has no row: no return is ever filled. Open, high and
    low are adjusted like the close.
    """
    bars = clean_bars.sort("source", "symbol", "session")
    numbers = [
        calendars.of(source).session_numbers(rows["session"].to_numpy())
        for (source,), rows in bars.partition_by("source", as_dict=True, maintain_order=True).items()
    ]
    number = pl.Series("number", np.concatenate([np.empty(0, np.int64), *numbers]))
    adjusted = pl.col("open", "high", "low") * pl.col("adj_close") / pl.col("close")
    aligned = bars.with_columns(number, adjusted.name.prefix("adj_"))
    name = ["source", "symbol"]
    before = pl.col("adj_close").shift(1).over(name)
    rows = aligned.with_columns(
        close_return=pl.col("adj_close") / before - 1.0,
        overnight_return=pl.col("adj_open") / before - 1.0,
        span=pl.col("number").diff().over(name),
    )
    return rows.select(pl.col(column).cast(kind) for column, kind in RETURNS.items())


def calendar_gaps(returns: pl.DataFrame, calendar: TradingCalendar) -> pl.DataFrame:
    """List gaps of symbols in rows of `gold.returns`: sessions from `first` to `last` (`n_sessions`)."""
    after = returns.filter(pl.col("span") > 1).sort("source", "symbol", "session")
    number, span = calendar.session_numbers(after["session"].to_numpy()), after["span"].to_numpy()
    days = calendar.all_sessions()
    return after.select(
        "source",
        "symbol",
        pl.Series("first", days[number - span + 1]),
        pl.Series("last", days[number - 1]),
        (pl.col("span") - 1).alias("n_sessions"),
    )


def describe_gaps(gaps: pl.DataFrame, max_gap: int) -> Sequence[str]:
    """Describe gaps, in a sentence for symbols that share one, and what to do if gaps up to `max_gap` are accepted."""
    if gaps.is_empty():
        return ["no symbol lacks a session between its first and its last bar"]
    sentences = group_by_message(
        (symbol, f"no bar of {source} on " + (f"{n} sessions, {first} to {last}" if n > 1 else f"1 session, {first}"))
        for source, symbol, first, last, n in gaps.iter_rows()
    )
    rule = (
        f"gaps up to {max_gap} sessions are accepted: the name is not tradable, and its next bar has the whole return"
    )
    if (gaps["n_sessions"] <= max_gap).all():
        return [*sentences, f"no action needed: {rule}"]
    longer = "a name with a longer one is left out of experiments that do not name it"
    return [*sentences, f"{rule}; {longer}: deliver the missing bars, or raise market.max_gap of the experiment"]
