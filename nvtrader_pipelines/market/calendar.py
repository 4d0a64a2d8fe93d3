"""Sessions of the New York Stock Exchange, from exchange_calendars."""

import datetime as dt
import os
import warnings
from contextlib import suppress
from functools import cache
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from zoneinfo import ZoneInfo

import numpy as np
from numpy.typing import NDArray

CALENDAR = "XNYS"
EXCHANGE_TIME = ZoneInfo("America/New_York")
SESSIONS_PER_YEAR = 252
FIRST_DAY = dt.date(1900, 1, 1)
LAST_DAY = dt.date(2049, 12, 31)  # fixed, so that a result does not depend on the day it is computed


@cache
def all_sessions() -> NDArray[np.datetime64]:
    """Sessions from 1900 to 2049 as (S,) days, ascending; read-only.

    They are stored beside the package's bytecode per version of exchange_calendars, which is slow to import.
    """
    name = f"{CALENDAR}-{FIRST_DAY}-{LAST_DAY}-{version('exchange_calendars')}.npy"
    stored = Path(str(files("nvtrader_pipelines"))) / "__pycache__" / name
    try:
        days = np.load(stored)
    except (OSError, ValueError, EOFError):  # none yet, or damaged
        days = _compute_sessions()
        _write_sessions(stored, days)
    days.flags.writeable = False
    return days


def _compute_sessions() -> NDArray[np.datetime64]:
    import exchange_calendars  # half a second with pandas, and most commands do not need it

    with warnings.catch_warnings():  # exchange_calendars 4.13 still reads values in a way pandas 4 will change
        warnings.filterwarnings("ignore", message="Series.values returning", category=DeprecationWarning)
        calendar = exchange_calendars.get_calendar(CALENDAR, start=str(FIRST_DAY), end=str(LAST_DAY))
    return calendar.sessions.to_numpy().astype("datetime64[D]")


def _write_sessions(stored: Path, days: NDArray[np.datetime64]) -> None:
    """Store sessions for later processes, unless the package is read-only."""
    temporary = stored.with_suffix(f".{os.getpid()}")
    with suppress(OSError):
        with temporary.open("wb") as file:
            np.save(file, days)
        temporary.replace(stored)


def sessions(first: dt.date | np.datetime64, last: dt.date | np.datetime64) -> NDArray[np.datetime64]:
    """Sessions from `first` to `last`, both included, as (T,) days.

    Raises:
        ValueError: if the dates lie outside the calendar, 1900 to 2049.
    """
    begin, end = _day(first), _day(last)
    if begin < np.datetime64(FIRST_DAY) or end > np.datetime64(LAST_DAY):
        raise ValueError(f"calendar {CALENDAR} covers {FIRST_DAY} to {LAST_DAY}, not {begin} to {end}")
    days = all_sessions()
    return days[np.searchsorted(days, begin) : np.searchsorted(days, end, side="right")]


def is_session(day: dt.date) -> bool:
    """Whether the exchange trades on `day`; False outside 1900 to 2049."""
    return bool(np.isin(np.datetime64(day, "D"), all_sessions()))


def session_numbers(days: NDArray[np.datetime64]) -> NDArray[np.int64]:
    """Running number of each session, so that differences count sessions.

    Raises:
        ValueError: if a day is not a session.
    """
    days = days.astype("datetime64[D]")
    numbers = np.searchsorted(all_sessions(), days)
    found = all_sessions()[np.minimum(numbers, len(all_sessions()) - 1)]
    if not np.array_equal(found, days):
        raise ValueError(f"{days[found != days][0]} is no session of {CALENDAR}; only cleaned bars can be numbered")
    return numbers.astype(np.int64)


def _day(day: dt.date | np.datetime64) -> np.datetime64:
    return day.astype("datetime64[D]") if isinstance(day, np.datetime64) else np.datetime64(day, "D")
