import datetime as dt

import pytest

from nvtrader_pipelines.market.calendar import NEW_YORK
from nvtrader_pipelines.market.returns import bar_returns, calendar_gaps, describe_gaps
from nvtrader_pipelines.market.tables import RETURNS
from tests.markets import LandedFile, csv_file, market_tables, synthetic_bars

HEADER = "symbol,date,open,high,low,close,volume,adj_close"


def returns_of(*rows):
    return market_tables(LandedFile("p.csv", "\n".join([HEADER, *rows]).encode())).returns


def test_returns_are_of_adjusted_prices():
    returns = returns_of("KO,2020-01-02,40,44,36,40,9,20", "KO,2020-01-03,11,12,10,12,9,24")
    assert returns.schema == RETURNS
    first, second = returns.rows(named=True)
    assert (first["close_return"], first["overnight_return"], first["span"]) == (None, None, None)
    assert second["close_return"] == pytest.approx(24 / 20 - 1)
    assert second["adj_open"] == pytest.approx(22.0)
    assert (first["adj_high"], first["adj_low"]) == (22.0, 18.0)  # the factor is 1 / 2, then 2
    assert (second["adj_high"], second["adj_low"]) == (24.0, 20.0)
    assert second["overnight_return"] == pytest.approx(22 / 20 - 1)
    assert second["span"] == 1


def test_return_after_a_missing_bar_spans_it():
    returns = returns_of("KO,2020-01-02,,,,10,,", "KO,2020-01-06,,,,11,,")
    assert returns["session"].to_list() == [dt.date(2020, 1, 2), dt.date(2020, 1, 6)]
    assert returns["close_return"].to_list()[1] == pytest.approx(0.1)
    assert returns["span"].to_list() == [None, 2]


def test_span_does_not_count_weekends_and_holidays():
    returns = returns_of("KO,2021-12-31,,,,10,,", "KO,2022-01-03,,,,11,,")
    assert returns["span"].to_list() == [None, 1]


def test_intraday_columns_are_null_without_intraday_prices():
    returns = market_tables(csv_file(synthetic_bars(n_sessions=5, opens=False))).returns
    for name in ("overnight_return", "adj_open", "adj_high", "adj_low"):
        assert returns[name].null_count() == len(returns)


def test_overnight_and_intraday_compound_to_the_close_return():
    tables = market_tables(csv_file(synthetic_bars(n_sessions=40)))
    rows = tables.returns.drop_nulls("close_return")
    intraday = rows["adj_close"] / rows["adj_open"]
    whole = (1.0 + rows["overnight_return"]) * intraday - 1.0
    assert whole.to_numpy() == pytest.approx(rows["close_return"].to_numpy(), abs=1e-12)


def test_returns_do_not_depend_on_the_order_of_bars():
    bars = market_tables(csv_file(synthetic_bars(n_sessions=20))).clean_bars
    assert bar_returns(bars.reverse()).equals(bar_returns(bars))


def test_gaps_are_listed_with_symbol_and_sessions():
    returns = returns_of(
        "KO,2020-01-02,,,,10,,",
        "KO,2020-01-06,,,,11,,",
        "KO,2020-01-07,,,,11,,",
        "AB,2021-12-30,,,,10,,",
        "AB,2022-01-05,,,,11,,",
    )
    gaps = calendar_gaps(returns, NEW_YORK)
    assert gaps.rows() == [
        ("landing", "AB", dt.date(2021, 12, 31), dt.date(2022, 1, 4), 3),
        ("landing", "KO", dt.date(2020, 1, 3), dt.date(2020, 1, 3), 1),
    ]
    long, short, action = describe_gaps(gaps, 3)
    assert long == "AB: no bar of landing on 3 sessions, 2021-12-31 to 2022-01-04"
    assert short == "KO: no bar of landing on 1 session, 2020-01-03"
    assert action.startswith("no action needed")
    assert "deliver the missing bars" in describe_gaps(gaps, 2)[-1]


def test_market_without_gaps_is_described():
    gaps = calendar_gaps(returns_of("KO,2021-12-31,,,,10,,", "KO,2022-01-03,,,,11,,"), NEW_YORK)
    assert gaps.is_empty()
    assert len(describe_gaps(gaps, 5)) == 1
