import datetime as dt

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nvtrader_pipelines.market.calendar import NEW_YORK, TradingCalendar
from nvtrader_pipelines.market.features import CrossSectionalRank, Fundamental, LogReturn, Vix
from nvtrader_pipelines.market.history import forward_fill
from nvtrader_pipelines.market.series import as_of, series_digest, series_fields
from nvtrader_pipelines.market.series_files import ingest_series
from nvtrader_pipelines.market.sources.delivery import LandedFile
from tests.markets import INGESTED_AT

SESSIONS = np.arange("2020-01-29", "2020-02-05", dtype="datetime64[D]")[[0, 1, 2, 5, 6]]  # Wednesday to Tuesday


def rows(*lines: str) -> pl.DataFrame:
    """Rows of `silver.series` from lines `symbol,published,value`, of the field `pe`."""
    content = ["symbol,published,value,field", *(f"{line},pe" for line in lines)]
    series = ingest_series([LandedFile("series/a.csv", "\n".join(content).encode())], INGESTED_AT)
    assert series.delivery_rows["reason"].to_list() == [None]
    return series.rows


def known(*lines: str, calendar: TradingCalendar = NEW_YORK, sessions=SESSIONS) -> list:
    """Last value of AAA and BBB at each session."""
    values = forward_fill(as_of(rows(*lines), sessions, ("AAA", "BBB"), calendar)["pe"])
    return np.where(np.isnan(values), None, values).T.tolist()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("published", "first"),
    [
        ("2020-01-30", 2),
        ("2020-01-31", 3),  # Friday
        ("2020-02-01", 3),  # Saturday
        ("2020-01-31T16:00", 2),  # the close
        ("2020-01-31 16:00:01", 3),
        ("2020-01-31T21:00:00Z", 2),
        ("2020-02-01T06:30:00+09:00", 3),  # Friday 16:30 in New York
        ("2020-01-31 00:00:00", 3),  # a day, as tables write it
        ("20200131", 3),
        ("2010-01-01", 0),
        ("2020-02-04", 5),  # not known yet
    ],
)
def test_value_is_known_from_first_session_after_its_publication(published, first):
    assert known(f"AAA,{published},7")[0] == [None] * first + [7.0] * (5 - first)


@pytest.mark.slow
@pytest.mark.parametrize(("published", "first"), [("2020-11-27T13:00", 0), ("2020-11-27T15:45", 1)])
def test_value_published_after_an_early_close_is_known_at_the_next_one(published, first):
    days = np.array(["2020-11-27", "2020-11-30"], dtype="datetime64[D]")  # the first ends at 13:00
    assert known(f"AAA,{published},7", sessions=days)[0] == [None] * first + [7.0] * (2 - first)


def test_time_is_compared_with_the_closes_of_the_calendar():
    days = np.arange("2020-01-30", "2020-02-02", dtype="datetime64[D]")
    coins = {"calendar": TradingCalendar("24/7"), "sessions": days}
    assert known("AAA,2020-02-01T00:00:00.5Z,7", **coins)[0] == [None, None, 7.0]
    assert known("AAA,2020-01-31T23:59Z,7", **coins)[0] == [None, 7.0, 7.0]


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (["AAA,2020-01-28,1", "AAA,2020-01-30,2"], [1, 1, 2, 2, 2]),  # restated
        (["AAA,2020-02-01,3", "AAA,2020-01-31,2", "AAA,2020-01-28,1"], [1, 1, 1, 3, 3]),  # both known on Monday
        (["AAA,2020-01-31T17:00,2", "AAA,2020-01-31,3"], [None, None, None, 3, 3]),  # the day ends later
        (["AAA,2020-02-03T10:00,2", "AAA,2020-02-02,3"], [None, None, None, 2, 2]),
    ],
)
def test_later_publication_replaces_earlier_one(lines, expected):
    assert known(*lines)[0] == expected


def test_value_of_the_market_is_that_of_names_without_one_of_their_own():
    found = known(",2020-01-28,1", "BBB,2020-01-30,5", ",2020-01-31,2", "ZZZ,2020-01-28,9")
    assert found == [[1, 1, 1, 2, 2], [1, 1, 5, 5, 5]]


TEXTS = [f"2020-01-{day}{time}" for day in range(27, 32) for time in ("", "T10:00", "T16:00", "T16:00:01")]
LINES = st.lists(
    st.tuples(st.sampled_from(["", "AAA", "BBB"]), st.sampled_from(TEXTS)), unique=True, min_size=1, max_size=8
)


@pytest.mark.slow
@given(lines=LINES, t=st.integers(0, 4))
def test_value_published_after_a_close_changes_nothing_up_to_it(lines, t):
    every = rows(*(f"{symbol},{published},{n}" for n, (symbol, published) in enumerate(lines)))
    day = SESSIONS[t].item()
    by_day, close = pl.col("published_at").is_null(), NEW_YORK.close(day).astimezone(dt.UTC)
    past = every.filter((by_day & (pl.col("published") < day)) | (pl.col("published_at") <= close))
    whole, cut = (as_of(series, SESSIONS, ("AAA", "BBB"), NEW_YORK) for series in (every, past))
    np.testing.assert_array_equal(whole["pe"][: t + 1], cut.get("pe", np.full((5, 2), np.nan))[: t + 1])


def test_digest_is_of_the_fields_that_are_read_alone():
    series, features = rows("AAA,2020-01-28,1"), [CrossSectionalRank(of=Fundamental()), LogReturn(window=5)]
    other = series.with_columns(field=pl.lit("vix"))
    assert series_fields(features) == {"pe"}
    assert series_digest(pl.concat([series, other]), features) == series_digest(series, features)
    assert series_digest(series.with_columns(value=2.0), features) != series_digest(series, features)
    assert series_digest(None, [Vix()]) == series_digest(series, [LogReturn(window=5)]) == ""
