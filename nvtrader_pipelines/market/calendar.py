"""Trading calendars: the sessions of a market, how many a year has, and when one begins and ends."""

import datetime as dt
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, NamedTuple
from zoneinfo import ZoneInfo

import numpy as np
from numpy.typing import NDArray
from pydantic import AfterValidator

FIRST_DAY = dt.date(1900, 1, 1)
LAST_DAY = dt.date(2049, 12, 31)  # fixed, so that a result does not depend on the day it is computed
SESSIONS = Path(str(files("nvtrader_pipelines.market"))) / "sessions.npz"  # of exchanges: a bit per day from the first
_COUNTED_YEARS = (2005, 2024)  # first and last year of an exchange whose sessions are counted


class _Hours(NamedTuple):
    """Sessions a year, and the local hours of a session; offsets count days from that of the session."""

    periods_per_year: int
    time_zone: str
    opens: dt.time
    closes: dt.time
    open_offset: int = 0
    close_offset: int = 0


INTERNATIONAL = "international"  # country of a market that belongs to none
_MIDNIGHT = dt.time(0)
_HOURS = {  # of calendars that need no exchange_calendars, which is slow to import
    "XNYS": _Hours(252, "America/New_York", dt.time(9, 30), dt.time(16)),
    "24/7": _Hours(365, "UTC", _MIDNIGHT, _MIDNIGHT, close_offset=1),
    "24/5": _Hours(260, "UTC", _MIDNIGHT, _MIDNIGHT, close_offset=1),
}
_COUNTRIES = {"XBOG": "CO", "XDUS": "DE", "XHAM": "DE", "XTAE": "IL"}  # their time zones name another or none
STOCKS = "stocks"
_ASSET_TYPES = {"24/7": "coins", "24/5": "currencies"}


@dataclass(frozen=True)
class TradingCalendar:
    """Sessions of a market, each named by its day.

    `name` is `24/7` (every day), `24/5` (every day from Monday to Friday) or a code of exchange_calendars, such as
    `XNYS`, whose sessions are those of the exchange, from 1900 to 2049 or as far as exchange_calendars knows them.
    """

    name: str

    @property
    def periods_per_year(self) -> int:
        """Sessions a year: 252 of XNYS, 365 of 24/7, 260 of 24/5, else the mean of the years 2005 to 2024 known."""
        return _hours(self.name).periods_per_year

    @property
    def time_zone(self) -> ZoneInfo:
        """Time zone of the market; UTC where it never closes."""
        return ZoneInfo(_hours(self.name).time_zone)

    @property
    def country(self) -> str:
        """Country of the exchange as in ISO 3166, such as US; international where the market belongs to none."""
        if self.name in _COUNTRIES:
            return _COUNTRIES[self.name]
        return _countries_of_zones().get(self.time_zone.key, INTERNATIONAL)

    @property
    def asset_type(self) -> str:
        """Type of the assets: coins of 24/7, currencies of 24/5, stocks of an exchange."""
        return _ASSET_TYPES.get(self.name, STOCKS)

    @property
    def never_closes(self) -> bool:
        """Whether a session begins as the last one ends, so that no order fills between them."""
        hours = _hours(self.name)
        return (hours.close_offset, hours.closes) >= (hours.open_offset + 1, hours.opens)

    def all_sessions(self) -> NDArray[np.datetime64]:
        """Return all sessions as (S,) days, ascending; read-only."""
        return _all_sessions(self.name)

    def sessions(self, first: dt.date | np.datetime64, last: dt.date | np.datetime64) -> NDArray[np.datetime64]:
        """Return the sessions from `first` to `last`, both included, as (T,) days.

        Raises:
            ValueError: if the dates lie outside 1900 to 2049.
        """
        begin, end = _day(first), _day(last)
        if begin < np.datetime64(FIRST_DAY) or end > np.datetime64(LAST_DAY):
            raise ValueError(f"calendar {self.name} covers {FIRST_DAY} to {LAST_DAY}, not {begin} to {end}")
        days = self.all_sessions()
        return days[np.searchsorted(days, begin) : np.searchsorted(days, end, side="right")]

    def is_session(self, day: dt.date) -> bool:
        """Whether the market trades on `day`; False outside the calendar."""
        return bool(np.isin(np.datetime64(day, "D"), self.all_sessions()))

    def previous_session(self, day: dt.date) -> dt.date:
        """Return the last session before `day`."""
        days = self.all_sessions()
        return days[np.searchsorted(days, _day(day)) - 1].item()

    def next_session(self, day: dt.date) -> dt.date:
        """Return the first session after `day`."""
        days = self.all_sessions()
        return days[np.searchsorted(days, _day(day), side="right")].item()

    def session_numbers(self, days: NDArray[np.datetime64]) -> NDArray[np.int64]:
        """Return the running number of each session, so that differences count sessions.

        Raises:
            ValueError: if a day is not a session.
        """
        days = days.astype("datetime64[D]")
        all_days = self.all_sessions()
        numbers = np.searchsorted(all_days, days)
        nearest = all_days[np.minimum(numbers, len(all_days) - 1)]
        if not np.array_equal(nearest, days):
            day = days[nearest != days][0]
            raise ValueError(f"{day} is no session of {self.name}; only cleaned bars can be numbered")
        return numbers.astype(np.int64)

    def opening(self, session: dt.date) -> dt.datetime:
        """Return when a session begins."""
        hours = _hours(self.name)
        return dt.datetime.combine(session + dt.timedelta(days=hours.open_offset), hours.opens, self.time_zone)

    def closes(self, sessions: NDArray[np.datetime64]) -> list[dt.datetime]:
        """Return when each of some sessions ends, ascending; early closes as exchange_calendars has them."""
        days = sessions.astype("datetime64[D]").tolist()
        ends = {day: self.close(day) for day in days}
        if self.name not in _HOURS or self.name == NEW_YORK.name:
            exchange = _exchange(self.name, str(days[0]), str(days[-1]))
            early = exchange.closes[exchange.closes.index.isin(exchange.early_closes)]
            ends |= {day.date(): close.to_pydatetime() for day, close in early.items() if day.date() in ends}
        return list(ends.values())

    def close(self, session: dt.date) -> dt.datetime:
        """Return when a session ends; early closes count as ordinary ones."""
        hours = _hours(self.name)
        return dt.datetime.combine(session + dt.timedelta(days=hours.close_offset), hours.closes, self.time_zone)

    def ending_on(self, day: dt.date) -> dt.date:
        """Return the day whose session, if it has one, ends on `day`: the day before where sessions end at midnight."""
        return day - dt.timedelta(days=_hours(self.name).close_offset)

    def decision_deadline(self, session: dt.date) -> dt.datetime:
        """Return until when the plan of a session may be decided on: before prices of its fill session are known.

        That is the opening of the next session, or its close where the market never closes.
        """
        following = self.next_session(session)
        return self.close(following) if self.never_closes else self.opening(following)

    def last_ended(self, now: dt.datetime) -> dt.date:
        """Return the last session that has ended."""
        session = self.previous_session(now.astimezone(self.time_zone).date() + dt.timedelta(days=1))
        while self.close(session) > now:
            session = self.previous_session(session)
        return session

    def current_day(self, now: dt.datetime) -> dt.date:
        """Return the local date, or the session that has already opened on the evening before its day."""
        today = now.astimezone(self.time_zone).date()
        following = self.next_session(today)
        return following if self.opening(following) <= now else today


NEW_YORK = TradingCalendar("XNYS")


@dataclass(frozen=True)
class Calendars:
    """Calendars by source; one that names none trades in New York."""

    by_source: Mapping[str, TradingCalendar] = field(default_factory=dict)

    def of(self, source: str) -> TradingCalendar:
        """Return the calendar of a source."""
        return self.by_source.get(source, NEW_YORK)


ALL_NEW_YORK = Calendars()


def _require_calendar(name: str) -> str:
    """Return the name of a calendar.

    Raises:
        ValueError: if there is no such calendar.
    """
    with np.load(SESSIONS) as packed:
        exchanges = packed.files
    if name not in (*_HOURS, *exchanges):
        raise ValueError(
            f"a calendar must be 24/7, 24/5 or a code of exchange_calendars whose sessions are known, but is {name!r}; "
            f"those are {', '.join(exchanges)}"
        )
    return name


CalendarName = Annotated[str, AfterValidator(_require_calendar)]


@cache
def _hours(name: str) -> _Hours:
    if name in _HOURS:
        return _HOURS[name]
    years, counts = np.unique(_all_sessions(name).astype("datetime64[Y]").astype(int) + 1970, return_counts=True)
    counted = counts[(years >= max(_COUNTED_YEARS[0], years[0] + 1)) & (years <= _COUNTED_YEARS[1])]
    exchange = _exchange(name, *(f"{_COUNTED_YEARS[1]}-{day}" for day in ("01-01", "12-31")))
    opens, closes = exchange.open_times[-1][1], exchange.close_times[-1][1]
    offsets = exchange.open_offset, exchange.close_offset
    return _Hours(round(counted.mean()), exchange.tz.key, opens, closes, *offsets)


def _exchange(name: str, first: str, last: str) -> Any:
    """Calendar of exchange_calendars between two days."""
    import exchange_calendars  # half a second with pandas, and most commands do not need it

    with warnings.catch_warnings():  # exchange_calendars 4.13 still reads values in a way pandas 4 will change
        warnings.filterwarnings("ignore", message="Series.values returning", category=DeprecationWarning)
        return exchange_calendars.get_calendar(name, start=first, end=last)


@cache
def _countries_of_zones() -> dict[str, str]:
    lines = (files("tzdata.zoneinfo") / "zone.tab").read_text().splitlines()
    rows = [line.split("\t") for line in lines if not line.startswith("#")]
    return {zone: country for country, _, zone, *_ in rows}


@cache
def _all_sessions(name: str) -> NDArray[np.datetime64]:
    """Sessions of a calendar as (S,) days, ascending; read-only."""
    days = np.arange(np.datetime64(FIRST_DAY), np.datetime64(LAST_DAY) + 1)
    if name == "24/5":
        days = days[np.is_busday(days)]
    elif name != "24/7":
        with np.load(SESSIONS) as packed:
            days = days[np.unpackbits(packed[name], count=len(days)).astype(bool)]
    days.flags.writeable = False
    return days


def _day(day: dt.date | np.datetime64) -> np.datetime64:
    return day.astype("datetime64[D]") if isinstance(day, np.datetime64) else np.datetime64(day, "D")
