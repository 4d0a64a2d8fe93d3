import datetime as dt

import numpy as np
import pytest

from nvtrader_pipelines.market.calendar import is_session, session_numbers, sessions


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
