import datetime as dt
import pickle

import numpy as np
import pytest
from pydantic import TypeAdapter, ValidationError

from nvtrader_pipelines.market.calendar import NEW_YORK, CalendarName, Calendars, TradingCalendar
from scripts.pack_sessions import exchange_names, exchange_sessions

EVERY_DAY, WEEKDAYS, LONDON, CHICAGO = map(TradingCalendar, ("24/7", "24/5", "XLON", "CMES"))
FRIDAY, SATURDAY, SUNDAY, MONDAY = (dt.date(2024, 3, day) for day in (1, 2, 3, 4))


def test_weekends_and_holidays_are_no_sessions_of_new_york():
    week = NEW_YORK.sessions(dt.date(2021, 12, 31), dt.date(2022, 1, 7))
    assert [str(day) for day in week] == [
        "2021-12-31",
        "2022-01-03",
        "2022-01-04",
        "2022-01-05",
        "2022-01-06",
        "2022-01-07",
    ]
    assert not NEW_YORK.is_session(dt.date(2021, 12, 24))


def test_unscheduled_closings_are_no_sessions():
    assert not NEW_YORK.is_session(dt.date(2001, 9, 11))
    assert not NEW_YORK.is_session(dt.date(2012, 10, 29))
    assert NEW_YORK.is_session(dt.date(2012, 10, 31))


@pytest.mark.parametrize(
    ("market", "n_days", "periods", "zone"),
    [
        (NEW_YORK, 251, 252, "America/New_York"),
        (EVERY_DAY, 365, 365, "UTC"),
        (WEEKDAYS, 261, 260, "UTC"),
        (LONDON, 253, 253, "Europe/London"),
    ],
)
def test_year_has_the_sessions_of_its_calendar(market, n_days, periods, zone):
    assert len(market.sessions(dt.date(2021, 1, 1), dt.date(2021, 12, 31))) == n_days + (market == NEW_YORK)
    assert (market.periods_per_year, market.time_zone.key) == (periods, zone)


@pytest.mark.parametrize(
    ("name", "country", "asset_type"),
    [
        ("XNYS", "US", "stocks"),
        ("XLON", "GB", "stocks"),
        ("XTAE", "IL", "stocks"),
        ("24/7", "international", "coins"),
        ("24/5", "international", "currencies"),
    ],
)
def test_calendar_has_a_country_and_an_asset_type(name, country, asset_type):
    assert (TradingCalendar(name).country, TradingCalendar(name).asset_type) == (country, asset_type)


@pytest.mark.filterwarnings("ignore:Series.values returning")  # of exchange_calendars
@pytest.mark.parametrize("name", ["24/7", "24/5"])
def test_round_the_clock_sessions_are_those_of_exchange_calendars(name):
    import exchange_calendars

    theirs = exchange_calendars.get_calendar(name, start="2020-01-01", end="2021-12-31").sessions
    ours = TradingCalendar(name).sessions(dt.date(2020, 1, 1), dt.date(2021, 12, 31))
    np.testing.assert_array_equal(ours, theirs.to_numpy().astype("datetime64[D]"))


@pytest.mark.parametrize(
    ("market", "before", "after"),
    [(NEW_YORK, FRIDAY, MONDAY), (EVERY_DAY, SATURDAY, MONDAY), (WEEKDAYS, FRIDAY, MONDAY)],
)
def test_sessions_around_a_sunday(market, before, after):
    assert (market.previous_session(SUNDAY), market.next_session(SUNDAY)) == (before, after)


@pytest.mark.parametrize(
    ("market", "opening", "close", "deadline"),
    [
        (NEW_YORK, "2024-03-01T09:30:00-05:00", "2024-03-01T16:00:00-05:00", "2024-03-04T09:30:00-05:00"),
        (EVERY_DAY, "2024-03-01T00:00:00+00:00", "2024-03-02T00:00:00+00:00", "2024-03-03T00:00:00+00:00"),
        (WEEKDAYS, "2024-03-01T00:00:00+00:00", "2024-03-02T00:00:00+00:00", "2024-03-05T00:00:00+00:00"),
        (
            TradingCalendar("CMES"),
            "2024-02-29T17:00:00-06:00",
            "2024-03-01T17:00:00-06:00",
            "2024-03-04T17:00:00-06:00",
        ),
    ],
)
def test_friday_begins_ends_and_is_decided_on(market, opening, close, deadline):
    times = market.opening(FRIDAY), market.close(FRIDAY), market.decision_deadline(FRIDAY)
    assert [time.isoformat() for time in times] == [opening, close, deadline]


def test_decision_deadline_skips_holidays():
    assert NEW_YORK.decision_deadline(dt.date(2024, 7, 3)).isoformat() == "2024-07-05T09:30:00-04:00"
    assert NEW_YORK.decision_deadline(dt.date(2024, 12, 31)).isoformat() == "2025-01-02T09:30:00-05:00"


@pytest.mark.parametrize(
    ("market", "now", "ended"),
    [
        (NEW_YORK, "2024-03-01T20:59:59+00:00", dt.date(2024, 2, 29)),
        (NEW_YORK, "2024-03-01T21:00:00+00:00", FRIDAY),
        (NEW_YORK, "2024-03-03T12:00:00+00:00", FRIDAY),
        (EVERY_DAY, "2024-03-03T00:00:00+00:00", SATURDAY),
        (EVERY_DAY, "2024-03-02T23:59:59+00:00", FRIDAY),
        (WEEKDAYS, "2024-03-03T12:00:00+00:00", FRIDAY),
    ],
)
def test_last_ended_session_has_closed(market, now, ended):
    assert market.last_ended(dt.datetime.fromisoformat(now)) == ended


def test_unknown_calendar_is_refused_with_the_known_ones():
    with pytest.raises(ValidationError, match="XLON"):
        TypeAdapter(CalendarName).validate_python("XNAS1")
    assert TypeAdapter(CalendarName).validate_python("XLON") == "XLON"


@pytest.mark.filterwarnings("ignore:Series.values returning")  # of exchange_calendars
def test_year_of_an_exchange_known_for_few_years_has_their_mean():
    assert TradingCalendar("XSAU").periods_per_year == pytest.approx(250, abs=3)


def test_source_without_a_calendar_trades_in_new_york():
    calendars = Calendars({"coins": EVERY_DAY})
    assert (calendars.of("coins"), calendars.of("landing")) == (EVERY_DAY, NEW_YORK)


def test_calendar_is_equal_after_pickling():
    assert pickle.loads(pickle.dumps(LONDON)) == LONDON


def test_dates_outside_the_calendar_are_refused():
    with pytest.raises(ValueError):
        NEW_YORK.sessions(dt.date(2049, 1, 1), dt.date(2050, 1, 1))
    assert not NEW_YORK.is_session(dt.date(1899, 12, 29))


def test_session_numbers_count_sessions():
    days = np.array(["2021-12-31", "2022-01-03", "2022-01-07"], dtype="datetime64[D]")
    assert np.diff(NEW_YORK.session_numbers(days)).tolist() == [1, 4]
    assert np.diff(EVERY_DAY.session_numbers(days)).tolist() == [3, 4]


def test_session_number_of_a_non_session_is_refused():
    with pytest.raises(ValueError):
        NEW_YORK.session_numbers(np.array(["2022-01-01"], dtype="datetime64[D]"))


def test_sessions_are_read_only():
    with pytest.raises(ValueError):
        NEW_YORK.sessions(dt.date(2022, 1, 3), dt.date(2022, 1, 7))[0] = np.datetime64("2022-01-01")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["XNYS", "XLON"])
def test_sessions_of_an_exchange_are_those_of_exchange_calendars(name):
    np.testing.assert_array_equal(TradingCalendar(name).all_sessions(), exchange_sessions(name))


@pytest.mark.nightly
@pytest.mark.filterwarnings("ignore")  # of exchange_calendars
def test_every_exchange_that_can_be_computed_is_packed():
    for name in exchange_names():
        np.testing.assert_array_equal(TradingCalendar(name).all_sessions(), exchange_sessions(name))
        assert TradingCalendar(name).periods_per_year > 200
