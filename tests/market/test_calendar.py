import datetime as dt
import sys
from importlib.metadata import version

import numpy as np
import pytest

from nvtrader_pipelines.market import calendar
from nvtrader_pipelines.market.calendar import all_sessions, is_session, session_numbers, sessions


@pytest.fixture
def stored(tmp_path, monkeypatch):
    """File of the stored sessions in an empty package, with the cache of this process cleared."""
    monkeypatch.setattr(calendar, "files", lambda _: tmp_path)
    (tmp_path / "__pycache__").mkdir()
    all_sessions.cache_clear()
    yield lambda: next((tmp_path / "__pycache__").iterdir())
    all_sessions.cache_clear()


def test_weekends_and_holidays_are_no_sessions():
    week = sessions(dt.date(2021, 12, 31), dt.date(2022, 1, 7))
    assert [str(day) for day in week] == [
        "2021-12-31",
        "2022-01-03",
        "2022-01-04",
        "2022-01-05",
        "2022-01-06",
        "2022-01-07",
    ]
    assert not is_session(dt.date(2021, 12, 24))


def test_unscheduled_closings_are_no_sessions():
    assert not is_session(dt.date(2001, 9, 11))
    assert not is_session(dt.date(2012, 10, 29))
    assert is_session(dt.date(2012, 10, 31))


def test_dates_outside_the_calendar_are_refused():
    with pytest.raises(ValueError, match="2050-01-01"):
        sessions(dt.date(2049, 1, 1), dt.date(2050, 1, 1))
    assert not is_session(dt.date(1899, 12, 29))


def test_session_numbers_count_sessions():
    days = np.array(["2021-12-31", "2022-01-03", "2022-01-07"], dtype="datetime64[D]")
    assert np.diff(session_numbers(days)).tolist() == [1, 4]


def test_session_number_of_a_non_session_is_refused():
    with pytest.raises(ValueError, match="2022-01-01"):
        session_numbers(np.array(["2022-01-01"], dtype="datetime64[D]"))


def test_sessions_are_read_only():
    with pytest.raises(ValueError, match="read-only"):
        sessions(dt.date(2022, 1, 3), dt.date(2022, 1, 7))[0] = np.datetime64("2022-01-01")


def test_sessions_are_computed_once_and_then_read(stored, monkeypatch):
    computed = all_sessions()
    assert stored().name == f"XNYS-1900-01-01-2049-12-31-{version('exchange_calendars')}.npy"
    all_sessions.cache_clear()
    monkeypatch.setitem(sys.modules, "exchange_calendars", None)  # cannot be imported
    np.testing.assert_array_equal(all_sessions(), computed)
    assert not all_sessions().flags.writeable


@pytest.mark.parametrize("length", [0, 3, 1000])
def test_damaged_stored_sessions_are_computed_again(stored, length):
    computed = all_sessions()
    content = stored().read_bytes()
    stored().write_bytes(content[:length])
    all_sessions.cache_clear()
    np.testing.assert_array_equal(all_sessions(), computed)
    assert stored().read_bytes() == content


def test_sessions_of_read_only_package_are_computed(stored, tmp_path):
    (tmp_path / "__pycache__").rmdir()
    assert len(all_sessions()) > 37_000
    assert not (tmp_path / "__pycache__").exists()
