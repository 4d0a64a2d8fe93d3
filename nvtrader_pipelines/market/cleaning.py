"""Cleaning of delivered rows: one bar per symbol and session, every other row in quarantine."""

import datetime as dt
from collections.abc import Sequence

import numpy as np
import polars as pl
from numpy.typing import NDArray

from nvtrader_pipelines.market.calendar import ALL_NEW_YORK, Calendars
from nvtrader_pipelines.market.rules import (
    MAX_FACTOR,
    PRICE_TOLERANCE,
    ROW_RULES,
    SESSION_NOT_ENDED,
    add_time_limits,
    calendar_name,
    first_broken_rule,
    is_session,
    parse_date,
    parse_day_of_moment,
    parse_local_day,
    parse_number,
    parse_symbol,
    strip_text,
)
from nvtrader_pipelines.market.tables import BARS, CLEAN_BARS, NUMBERS, PRICES, QUARANTINE

MAX_MOVE = 0.6  # largest one-day move of the adjusted close that needs no volume as evidence
_KEY = ["source", "parsed_symbol", "parsed_session"]
_DELIVERY_ORDER = ["ingested_at", "file", "line"]
_READ_BY_RULES = ["current_day", "last_ended", "moment_day", "local_day", "calendar", "is_session"]
_PAYLOAD = [f"parsed_{name}" for name in NUMBERS]

_IDENTICAL = "the same bar was delivered before"
CORRECTED = "a later row has other values for this bar and replaces it"
_DIFFERENT = (
    "lines {} and {} of the file are two different bars of the symbol on this day; if a column tells them apart "
    "(series, expiry, exchange, hour), deliver one of them, or make it a part of the symbol"
)
_UNEXPLAINED = "the adjusted close moved by more than 60 % in one day without volume or a split"
_IMPLAUSIBLE = f"the adjusted close differs from the last good one by more than a factor of {MAX_FACTOR:,.0f}"
_MOVES = {"implausible_move": _IMPLAUSIBLE, "unexplained_move": _UNEXPLAINED}
_GOOD_IN_QUARANTINE = ["duplicate", SESSION_NOT_ENDED]
_FIRST_BARS = 21  # bars of a symbol whose median its first bar is compared with


def clean(
    bars: pl.DataFrame, deliveries: pl.DataFrame, now: dt.datetime, calendars: Calendars = ALL_NEW_YORK
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Split rows into clean bars (`silver.clean_bars`) and refused ones (`silver.quarantine`).

    Every row is in exactly one of the two. A refused row names the first rule it breaks: `rules.ROW_RULES` in
    order, then `several_bars`, `duplicate`, and `implausible_move` or `unexplained_move`. An unreadable file is one
    quarantined row with line 0. Of two rows for one symbol and session, the earlier delivery counts if they agree and
    the later one if they differ; within a file, rows with different prices are all refused.

    Args:
        bars: rows of `bronze.bars`; the whole history, since duplicates and moves span years.
        deliveries: rows of `bronze.deliveries`.
        now: moment by which a session must have ended.
        calendars: sessions and time zones, by source.
    """
    parsed = add_time_limits(parse_bars(bars, calendars), now, calendars)
    judged = parsed.with_columns(first_broken_rule(ROW_RULES)).drop(_READ_BY_RULES)
    broken = judged.filter(pl.col("rule").is_not_null())
    ordered = judged.filter(pl.col("rule").is_null()).sort(_KEY + _DELIVERY_ORDER)
    del parsed, judged  # a market of many names has gigabytes of text
    ordered, different = _refuse_different_bars(ordered)
    good, refused = _select_one_bar_per_session(ordered)
    rows = [_to_quarantine(part) for part in (broken, different, refused)]
    quarantine = pl.concat([_unreadable_files(deliveries), *rows])
    return _to_clean_bars(good), quarantine.sort("source", "file", "line", "symbol", "date")


def files_without_good_rows(bars: pl.DataFrame, quarantine: pl.DataFrame) -> pl.DataFrame:
    """Files (source, file) in which every row is bad; duplicates and rows of a session that has not ended are not."""
    bad = quarantine.filter(~pl.col("rule").is_in(_GOOD_IN_QUARANTINE)).group_by("source", "file").len("n_bad")
    rows = bars.group_by("source", "file").len("n_rows")
    counts = bad.join(rows, on=["source", "file"], how="left").with_columns(pl.col("n_rows").fill_null(0))
    return counts.filter(pl.col("n_bad") >= pl.col("n_rows")).select("source", "file").sort("source", "file")


def parse_bars(bars: pl.DataFrame, calendars: Calendars) -> pl.DataFrame:
    """Add the parsed twins of the columns of `bronze.bars`, and what the rules read of its calendar.

    A symbol without any adjusted close in a file has its closes there.
    """
    has_adj_close = strip_text("adj_close").is_not_null().any().over("source", "file", "parsed_symbol")
    adj_close = pl.when(~has_adj_close).then("parsed_close").otherwise("parsed_adj_close")
    return (
        bars.select(BARS.names())
        .with_columns(
            parse_symbol().alias("parsed_symbol"),
            parse_date(calendars, ("source", "file")).alias("parsed_session"),
            parse_day_of_moment().alias("moment_day"),
            parse_local_day(calendars).alias("local_day"),
            *(parse_number(name).alias(f"parsed_{name}") for name in NUMBERS),
            calendar_name(calendars).alias("calendar"),
        )
        .with_columns(
            _without_intraday_days(), parsed_adj_close=adj_close, moment_day=pl.coalesce("moment_day", "parsed_session")
        )
        .with_columns(is_session("parsed_session", calendars).alias("is_session"))
    )


def _without_intraday_days() -> pl.Expr:
    """Parsed session, null where the file has the day with another time, too: its midnight bar is intraday."""
    is_intraday = pl.col("parsed_session").is_null() & pl.col("moment_day").is_not_null()
    day = pl.struct("source", "file", day="parsed_session")
    intraday = [pl.struct("source", "file", day=name).filter(is_intraday) for name in ("moment_day", "local_day")]
    return pl.when(~pl.any_horizontal(day.is_in(days.implode()) for days in intraday)).then("parsed_session")


def _refuse_different_bars(ordered: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the rows, and those refused since their file has other prices for their symbol and session."""
    key = [*_KEY, "file"]
    several = ordered.filter(pl.any_horizontal(_has_key_of_row(shift, key) for shift in (1, -1)))
    first = {name: pl.col(f"parsed_{name}").first().over(key) for name in PRICES}
    agrees = pl.all_horizontal(
        pl.col(f"parsed_{name}").eq_missing(price)
        | ((pl.col(f"parsed_{name}") / price - 1.0).abs() <= PRICE_TOLERANCE).fill_null(value=False)
        for name, price in first.items()
    )
    lines = (pl.col("line").first().over(key), pl.col("line").filter(~pl.col("agrees")).first().over(key))
    marked = several.with_columns(agrees=agrees).with_columns(
        rule=pl.lit("several_bars"), value=pl.col("close"), reason=pl.format(_DIFFERENT, *lines)
    )
    different = marked.filter(pl.col("reason").is_not_null()).select(ordered.columns)
    return ordered.join(different, on=["source", "file", "line", "parsed_symbol"], how="anti"), different


def _select_one_bar_per_session(ordered: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the good bars sorted by key, and the refused rows; input is sorted by key and delivery."""
    refused: list[pl.DataFrame] = []
    while True:
        good, duplicates = _drop_duplicates(ordered)
        moved = good.with_columns(_move_rule(good), value=pl.col("close"))
        moved = moved.with_columns(reason=pl.col("rule").replace_strict(_MOVES, return_dtype=pl.String))
        jumps = moved.filter(pl.col("rule").is_not_null())
        # A refused jump that had replaced an earlier delivery of its bar makes room for that one.
        displacing = jumps.join(duplicates, on=_KEY, how="semi")
        if displacing.is_empty():
            return moved.filter(pl.col("rule").is_null()), pl.concat([*refused, duplicates, jumps])
        refused.append(displacing)
        ordered = ordered.join(displacing, on=["source", "file", "line", "parsed_symbol"], how="anti")


def _drop_duplicates(ordered: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return one row per key, and refused duplicates; input is sorted by key and delivery."""
    repeated = pl.any_horizontal(_has_key_of_row(shift, _KEY) for shift in (1, -1))
    marked = ordered.with_columns(repeated.alias("repeated"))
    single, several = marked.filter(~pl.col("repeated")), marked.filter(pl.col("repeated"))
    same = pl.all_horizontal(pl.col(name).eq_missing(pl.col(name).last().over(_KEY)) for name in _PAYLOAD)
    several = several.with_columns(same.alias("same"))
    first_same = pl.col("same") & (pl.col("same").cast(pl.Int32).cum_sum().over(_KEY) == 1)
    several = several.with_columns(first_same.alias("accepted"))
    accepted = pl.concat([single, several.filter("accepted").select(single.columns)]).sort(_KEY).drop("repeated")
    repeats = several.filter(~pl.col("accepted"))
    reason = pl.when("same").then(pl.lit(_IDENTICAL)).otherwise(pl.lit(CORRECTED))
    duplicates = repeats.with_columns(rule=pl.lit("duplicate"), value=pl.col("close"), reason=reason)
    return accepted, duplicates.select(accepted.columns)


def _has_key_of_row(shift: int, key: Sequence[str]) -> pl.Expr:
    """Whether a row has the key of the row `shift` rows before it (negative: after it)."""
    return pl.all_horizontal(pl.col(name) == pl.col(name).shift(shift) for name in key).fill_null(value=False)


def _move_rule(bars: pl.DataFrame) -> pl.Series:
    """Rule that each bar's move breaks, or null."""
    implausible = implausible_moves(bars)
    unexplained = np.zeros(len(bars), dtype=bool)
    unexplained[~implausible] = unexplained_moves(bars.filter(~implausible))
    rules = np.select([implausible, unexplained], list(_MOVES), default="")
    return pl.Series("rule", rules.astype(str), dtype=pl.String).replace("", None)


def _to_clean_bars(good: pl.DataFrame) -> pl.DataFrame:
    values = good.select(
        "source",
        pl.col("parsed_symbol").alias("symbol"),
        pl.col("parsed_session").alias("session"),
        pl.col("parsed_session").dt.year().alias("year"),
        *(pl.col(f"parsed_{name}").alias(name) for name in NUMBERS),
        "file",
        "line",
    )
    return values.select(pl.col(name).cast(kind) for name, kind in CLEAN_BARS.items())


def _to_quarantine(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.select(pl.col(name).cast(kind) for name, kind in QUARANTINE.items())


def _unreadable_files(deliveries: pl.DataFrame) -> pl.DataFrame:
    """One row with line 0 per file whose latest delivery was refused as a whole."""
    latest = deliveries.sort("ingested_at").unique(["source", "file"], keep="last", maintain_order=True)
    refused = latest.filter(pl.col("rule").is_not_null())
    return _to_quarantine(
        refused.with_columns(
            year=pl.col("ingested_at").dt.year(),
            line=pl.lit(0),
            symbol=pl.lit(None, pl.String),
            date=pl.lit(None, pl.String),
            value=pl.lit(None, pl.String),
        )
    )


def unexplained_moves(bars: pl.DataFrame) -> NDArray[np.bool_]:
    """Flag bars that moved more than 60 % since the previous bar without volume, as (rows,).

    Moves are of the adjusted close, so a split is no move. After a flagged bar, the next bar is compared with the last
    good bar, unless it confirms the flagged level: a spike costs one bar, not two, and a new level is flagged once
    and then accepted. The flag of a bar does not depend on later bars.

    Args:
        bars: sorted by source, symbol and session, with `parsed_adj_close` and `parsed_volume`.
    """
    price, name = bars["parsed_adj_close"].to_numpy(), _name_numbers(bars)
    traded = bars["parsed_volume"].fill_null(0.0).to_numpy() > 0.0
    flagged = np.zeros(len(price), dtype=bool)
    suspects = np.flatnonzero((name[1:] == name[:-1]) & _is_far(price[1:], price[:-1]) & ~traded[1:]) + 1
    reference = -1
    for bar in suspects:  # few: only bars far from their predecessor
        if flagged[bar - 1]:
            flagged[bar] = bool(_is_far(price[bar], price[reference]))
        else:
            flagged[bar], reference = True, bar - 1
    return flagged


def _is_far(price: NDArray[np.float64], before: NDArray[np.float64]) -> NDArray[np.bool_]:
    return np.abs(price / before - 1.0) > MAX_MOVE


def implausible_moves(bars: pl.DataFrame) -> NDArray[np.bool_]:
    """Flag bars over 1000 times their symbol's last good bar, or under a thousandth, as (rows,).

    Neither volume nor repetition confirms such a move. A symbol's first bar is compared with the median of its first
    month, so that one implausible price does not refuse all later ones; no symbol is eligible before that month ends.

    Args:
        bars: as of `unexplained_moves`.
    """
    price, name = bars["parsed_adj_close"].to_numpy(), _name_numbers(bars)
    flagged = np.zeros(len(price), dtype=bool)
    wild = (name[1:] == name[:-1]) & _is_implausible(price[1:], price[:-1])
    for number in np.unique(name[1:][wild]):  # few
        rows = np.flatnonzero(name == number)
        reference = np.quantile(price[rows[:_FIRST_BARS]], 0.5, method="lower")
        for bar in rows:
            flagged[bar] = _is_implausible(price[bar], reference)
            reference = reference if flagged[bar] else price[bar]
    return flagged


def _is_implausible(price: NDArray[np.float64], before: NDArray[np.float64]) -> NDArray[np.bool_]:
    return (price > before * MAX_FACTOR) | (price < before / MAX_FACTOR)


def _name_numbers(bars: pl.DataFrame) -> NDArray[np.uint32]:
    """Running number of each bar's symbol."""
    return bars.select(pl.struct("source", "parsed_symbol").rle_id()).to_series().to_numpy()
