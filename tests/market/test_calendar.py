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


def test_days_without_trading_that_no_rule_foresees_are_known():
    assert not is_session(dt.date(2001, 9, 11))
    assert not is_session(dt.date(2012, 10, 29))
    assert is_session(dt.date(2012, 10, 31))


def test_the_calendar_refuses_dates_it_does_not_hold():
    with pytest.raises(ValueError, match="1900-01-01 to 2049-12-31"):
        sessions(dt.date(2049, 1, 1), dt.date(2050, 1, 1))
    assert not is_session(dt.date(1899, 12, 29))


def test_numbers_of_sessions_differ_by_the_sessions_between_them():
    days = np.array(["2021-12-31", "2022-01-03", "2022-01-07"], dtype="datetime64[D]")
    assert np.diff(session_numbers(days)).tolist() == [1, 4]


def test_a_day_that_is_no_session_has_no_number():
    with pytest.raises(ValueError, match="2022-01-01 is no session"):
        session_numbers(np.array(["2022-01-01"], dtype="datetime64[D]"))


def test_all_sessions_cannot_be_changed_by_a_caller():
    with pytest.raises(ValueError, match="read-only"):
        sessions(dt.date(2022, 1, 3), dt.date(2022, 1, 7))[0] = np.datetime64("2022-01-01")
