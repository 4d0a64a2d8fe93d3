import datetime as dt

import pytest

from nvtrader_pipelines.market.returns import bar_returns, calendar_gaps, told_gaps
from nvtrader_pipelines.market.tables import RETURNS
from tests.markets import LandedFile, csv_file, market_tables, synthetic_bars

HEADER = "symbol,date,open,high,low,close,volume,adj_close"


def returns_of(*rows):
    return market_tables(LandedFile("p.csv", "\n".join([HEADER, *rows]).encode())).returns


def test_returns_are_of_adjusted_prices_from_the_bar_before():
    returns = returns_of("KO,2020-01-02,40,44,36,40,9,20", "KO,2020-01-03,11,12,10,12,9,24")
    assert returns.schema == RETURNS
    first, second = returns.rows(named=True)
    assert (first["close_return"], first["overnight_return"], first["span"]) == (None, None, None)
    assert second["close_return"] == pytest.approx(24 / 20 - 1)
    assert second["adj_open"] == pytest.approx(22.0)
    assert second["overnight_return"] == pytest.approx(22 / 20 - 1)
    assert second["span"] == 1


def test_a_missing_day_has_no_row_and_the_next_return_spans_it():
    returns = returns_of("KO,2020-01-02,,,,10,,", "KO,2020-01-06,,,,11,,")
    assert returns["session"].to_list() == [dt.date(2020, 1, 2), dt.date(2020, 1, 6)]
    assert returns["close_return"].to_list()[1] == pytest.approx(0.1)
    assert returns["span"].to_list() == [None, 2]


def test_weekends_and_holidays_are_not_counted_in_the_span():
    returns = returns_of("KO,2021-12-31,,,,10,,", "KO,2022-01-03,,,,11,,")
    assert returns["span"].to_list() == [None, 1]


def test_without_opens_there_is_no_overnight_return():
    returns = market_tables(csv_file(synthetic_bars(n_sessions=5, opens=False))).returns
    assert returns["overnight_return"].null_count() == returns["adj_open"].null_count() == len(returns)


def test_overnight_and_intraday_make_up_the_close_return():
    tables = market_tables(csv_file(synthetic_bars(n_sessions=40)))
    rows = tables.returns.drop_nulls("close_return")
    intraday = rows["adj_close"] / rows["adj_open"]
    whole = (1.0 + rows["overnight_return"]) * intraday - 1.0
    assert whole.to_numpy() == pytest.approx(rows["close_return"].to_numpy(), abs=1e-12)


def test_the_order_of_the_bars_does_not_matter():
    bars = market_tables(csv_file(synthetic_bars(n_sessions=20))).clean_bars
    assert bar_returns(bars.reverse()).equals(bar_returns(bars))


def test_a_gap_is_named_with_its_symbol_its_sessions_and_what_follows():
    returns = returns_of(
        "KO,2020-01-02,,,,10,,",
        "KO,2020-01-06,,,,11,,",
        "KO,2020-01-07,,,,11,,",
        "AB,2021-12-30,,,,10,,",
        "AB,2022-01-05,,,,11,,",
    )
    gaps = calendar_gaps(returns)
    assert gaps.rows() == [
        ("landing", "AB", dt.date(2021, 12, 31), dt.date(2022, 1, 4), 3),
        ("landing", "KO", dt.date(2020, 1, 3), dt.date(2020, 1, 3), 1),
    ]
    long, short, borne = told_gaps(gaps, 3)
    assert long == "landing: AB has no bar on 3 sessions, 2021-12-31 to 2022-01-04"
    assert short == "landing: KO has no bar on 1 session, 2020-01-03"
    assert borne.startswith("nothing need be done: up to 3 sessions are borne")
    assert told_gaps(gaps, 2)[-1].endswith("deliver the missing bars, raise max_gap, or leave the symbol out")


def test_without_a_gap_none_is_told():
    gaps = calendar_gaps(returns_of("KO,2021-12-31,,,,10,,", "KO,2022-01-03,,,,11,,"))
    assert gaps.is_empty()
    assert told_gaps(gaps, 5) == ["no symbol misses a session between its first and its last bar"]
