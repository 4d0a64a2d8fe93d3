"""Outside series, such as the VIX and fundamentals, joined to sessions as of their publication."""

import datetime as dt
import hashlib
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import polars as pl
from numpy.typing import NDArray

from nvtrader_pipelines.market.calendar import TradingCalendar

FIELD = r"^[a-z][a-z0-9_]{0,31}$"


class SeriesUnavailable(ValueError):  # noqa: N818 - describes the series
    """Refusal of a feature whose outside series is missing, or has a gap from a first to a last session."""

    def __init__(self, field: str, reason: str, gap: tuple[dt.date, dt.date] | None = None) -> None:
        super().__init__(reason)
        self.field = field
        self.gap = gap


def series_fields(features: Iterable[object]) -> set[str]:
    """Fields of outside series that features read, the feature of a rank included."""
    return {name for feature in features for name in getattr(getattr(feature, "of", feature), "series_fields", ())}


def require_series(series: Mapping[str, NDArray[np.float64]], field: str, kind: str) -> NDArray[np.float64]:
    """Return the values of a field for a kind of feature, (T, N).

    Raises:
        SeriesUnavailable: if the field was not delivered.
    """
    if field not in series:
        raise SeriesUnavailable(
            field,
            f"{kind} needs the outside series {field!r}, but those delivered are: {', '.join(sorted(series)) or 'none'}"
            "; put a file with the columns symbol,published,field,value into data/landing/series, then `nvtrader "
            "ingest` reads it",
        )
    return series[field]


def series_digest(series: pl.DataFrame | None, features: Iterable[object]) -> str:
    """SHA-256 of the rows of `silver.series` that features read, as 64 hexadecimal digits; empty if they read none."""
    fields = series_fields(features)
    if series is None or not fields:
        return ""
    rows = series.filter(pl.col("field").is_in(fields)).drop("file", "line").unique().sort(pl.all())
    return hashlib.sha256(rows.write_csv().encode()).hexdigest()


def as_of(
    series: pl.DataFrame, sessions: NDArray[np.datetime64], symbols: Sequence[str], calendar: TradingCalendar
) -> dict[str, NDArray[np.float64]]:
    """Values of each field at the session at whose close they become known, (T, N); NaN at the others.

    A value with a day of publication alone becomes known at the first session after that day, one with a time at the
    first whose close is not before it. Of several that become known at a session the last published counts. Values
    published earlier become known at the first session. A value of the whole market is that of every name which has
    had none of its own up to then.

    Args:
        series: rows of `silver.series`.
        sessions: (T,) days of the calendar, ascending.
        symbols: N names; values of others are left out.
        calendar: calendar of the sessions.
    """
    known = _with_session(series, sessions, calendar).filter(pl.col("t") < len(sessions))
    last = known.sort("t", "moment", "published").unique(["field", "symbol", "t"], keep="last")
    column = {symbol: n for n, symbol in enumerate(symbols)}
    fields = {}
    for (field,), rows in last.partition_by("field", as_dict=True).items():
        market = np.full((len(sessions), 1), np.nan)
        own = np.full((len(sessions), len(symbols)), np.nan)
        for symbol, t, value in rows.select("symbol", "t", "value").iter_rows():
            if symbol == "":
                market[t] = value
            elif symbol in column:
                own[t, column[symbol]] = value
        has_own = np.logical_or.accumulate(~np.isnan(own), axis=0)
        fields[field] = np.where(has_own, own, market)
    never = np.full((len(sessions), len(symbols)), np.nan)
    return {field: fields.get(field, never) for field in series["field"].unique().sort()}


def _with_session(series: pl.DataFrame, sessions: NDArray[np.datetime64], calendar: TradingCalendar) -> pl.DataFrame:
    """Add `moment`, the time or the end of the day of publication, and `t`, the session that first knows the value."""
    zone = calendar.time_zone.key
    has_times = series["published_at"].null_count() < len(series)
    ends = calendar.closes(sessions) if has_times else [calendar.close(day) for day in sessions.tolist()]
    closes = pl.Series([end.astimezone(dt.UTC) for end in ends], dtype=pl.Datetime("us", "UTC"))
    after_day = np.searchsorted(sessions, series["published"].to_numpy(), side="right")
    at_close = closes.search_sorted(series["published_at"], side="left")
    end_of_day = pl.col("published").dt.offset_by("1d").cast(pl.Datetime("us")).dt.replace_time_zone(zone)
    return series.with_columns(
        moment=pl.coalesce("published_at", end_of_day.dt.convert_time_zone("UTC")),
        t=pl.when(pl.col("published_at").is_null()).then(pl.Series(after_day)).otherwise(pl.Series(at_close)),
    )
