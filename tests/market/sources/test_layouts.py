"""Layouts of well-known sources, with the column names and formats that these publish."""

import datetime as dt

import pytest

from nvtrader_pipelines.market.sources import LandedFile
from tests.markets import market_tables

DAY_BEFORE, DAY = dt.date(2020, 1, 30), dt.date(2020, 1, 31)
LAYOUTS = {  # file name and content: two bars, the last 10, 12, 9, 11, volume 1,200,000 and adjusted close 11
    "Yahoo Finance": (
        "AAPL.csv",
        "Date,Open,High,Low,Close,Adj Close,Volume\n2020-01-30,10,12,9,10.5,10.5,1100000\n"
        "2020-01-31,10,12,9,11,11,1200000\n",
    ),
    "yfinance history": (
        "AAPL.csv",
        "Date,Open,High,Low,Close,Volume,Dividends,Stock Splits\n"
        "2020-01-30 00:00:00-05:00,10,12,9,10.5,1100000,0.0,0.0\n"
        "2020-01-31 00:00:00-05:00,10,12,9,11,1200000,0.0,0.0\n",
    ),
    "Stooq": (
        "aapl_us_d.csv",
        "Date,Open,High,Low,Close,Volume\n2020-01-30,10,12,9,10.5,1100000\n2020-01-31,10,12,9,11,1200000\n",
    ),
    "Stooq bulk": (
        "aapl.us.txt",
        "<TICKER>,<PER>,<DATE>,<TIME>,<OPEN>,<HIGH>,<LOW>,<CLOSE>,<VOL>,<OPENINT>\n"
        "AAPL,D,20200130,000000,10,12,9,10.5,1100000,0\nAAPL,D,20200131,000000,10,12,9,11,1200000,0\n",
    ),
    "Kaggle, S&P 500 stocks": (
        "all_stocks_5yr.csv",
        "date,open,high,low,close,volume,Name\n2020-01-30,10,12,9,10.5,1100000,AAPL\n"
        "2020-01-31,10,12,9,11,1200000,AAPL\n2020-01-31,50,50,50,50,5,IBM\n",
    ),
    "Alpha Vantage": (
        "daily_adjusted_AAPL.csv",
        "timestamp,open,high,low,close,adjusted_close,volume,dividend_amount,split_coefficient\n"
        "2020-01-31,10,12,9,11,11,1200000,0.0000,1.0\n2020-01-30,10,12,9,10.5,10.5,1100000,0.0000,1.0\n",
    ),
    "Nasdaq.com": (
        "AAPL.csv",
        "Date,Close/Last,Volume,Open,High,Low\n01/31/2020,$11.00,1200000,$10.00,$12.00,$9.00\n"
        "01/30/2020,$10.50,1100000,$10.00,$12.00,$9.00\n",
    ),
    "investing.com": (
        "AAPL Historical Data.csv",
        '\ufeff"Date","Price","Open","High","Low","Vol.","Change %"\n'
        '"01/31/2020","11.00","10.00","12.00","9.00","1.20M","4.76%"\n'
        '"01/30/2020","10.50","10.00","12.00","9.00","1.10M","0.00%"\n',
    ),
    "investing.com, named months": (
        "AAPL Historical Data.csv",
        '"Date","Price","Open","High","Low","Vol.","Change %"\n'
        '"Jan 31, 2020","11.00","10.00","12.00","9.00","1,200.00K","4.76%"\n'.replace("1,200.00K", "1200.00K")
        + '"Jan 30, 2020","10.50","10.00","12.00","9.00","-","0.00%"\n',
    ),
    "Binance klines": (
        "AAPL-1d-2020-01.csv",
        "open_time,open,high,low,close,volume,close_time,quote_volume,count,taker_buy_volume,taker_buy_quote_volume,"
        "ignore\n1580342400000,10,12,9,10.5,1100000,1580428799999,0,1,0,0,0\n"
        "1580428800000,10,12,9,11,1200000,1580515199999,0,1,0,0,0\n",
    ),
    "Binance klines since 2025": (
        "AAPL-1d-2020-01-31.csv",
        "open_time,open,high,low,close,volume,close_time\n1580342400000000,10,12,9,10.5,1100000,1580428799999999\n"
        "1580428800000000,10,12,9,11,1200000,1580515199999999\n",
    ),
    "Tiingo": (
        "AAPL.csv",
        "date,close,high,low,open,volume,adjClose,adjHigh,adjLow,adjOpen,adjVolume,divCash,splitFactor\n"
        "2020-01-30,10.5,12,9,10,1100000,10.5,12,9,10,1100000,0.0,1.0\n"
        "2020-01-31,11,12,9,10,1200000,11,12,9,10,1200000,0.0,1.0\n",
    ),
    "Quandl WIKI": (
        "WIKI_PRICES.csv",
        "ticker,date,open,high,low,close,volume,ex-dividend,split_ratio,adj_open,adj_high,adj_low,adj_close,adj_volume\n"
        "AAPL,2020-01-30,10,12,9,10.5,1100000,0,1,10,12,9,10.5,1100000\n"
        "AAPL,2020-01-31,10,12,9,11,1200000,0,1,10,12,9,11,1200000\n",
    ),
    "CoinMarketCap on Kaggle": (
        "coin_Apple.csv",
        "SNo,Name,Symbol,Date,High,Low,Open,Close,Volume,Marketcap\n"
        "1,Apple,AAPL,2020-01-30 23:59:59,12,9,10,10.5,1100000,1\n"
        "2,Apple,AAPL,2020-01-31 23:59:59,12,9,10,11,1200000,1\n",
    ),
    "pandas, unnamed index of dates": (
        "AAPL.csv",
        ",Open,High,Low,Close,Volume\n2020-01-30,10,12,9,10.5,1100000\n2020-01-31,10,12,9,11,1200000\n",
    ),
    "Yahoo Finance of 2003, as in Matplotlib": (
        "AAPL.csv",
        "Date,Open,High,Low,Close,Volume,Adj. Close*\n31-Jan-20,10,12,9,11,1200000,11\n"
        "30-Jan-20,10,12,9,10.5,1100000,5\n",
    ),
    "Vega, named months without a comma": (
        "stocks.csv",
        "symbol,date,price,open,high,low,volume\nAAPL,Jan 30 2020,10.5,10,12,9,1100000\n"
        "AAPL,Jan 31 2020,11,10,12,9,1200000\n",
    ),
    "European, day first": (
        "AAPL.csv",
        "Date;Open;High;Low;Close;Volume\n30/01/2020;10;12;9;10.5;1,100,000\n31/01/2020;10;12;9;11;1,200,000\n",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("source", LAYOUTS)
def test_layout_of_a_source_gives_its_bars(source):
    name, content = LAYOUTS[source]
    tables = market_tables(LandedFile(name, content.encode()))
    assert tables.quarantine.is_empty()
    bars = tables.clean_bars.filter(symbol="AAPL").sort("session")
    values = bars.select("session", "open", "high", "low", "close", "volume", "adj_close").rows()
    assert values[1] == (DAY, 10.0, 12.0, 9.0, 11.0, 1_200_000.0, 11.0)
    assert (values[0][0], values[0][4]) == (DAY_BEFORE, 10.5)


@pytest.mark.parametrize("column", ["Name", "Stock", "Ticker", "STOCK", "ticker", " name "])
def test_spelling_of_the_symbol_column_tells_the_symbols_apart(column):
    content = f"date,close,{column}\n2020-01-02,1,A\n2020-01-02,2,B\n"
    tables = market_tables(LandedFile("prices.csv", content.encode()))
    assert tables.clean_bars.select("symbol", "close").sort("symbol").rows() == [("A", 1.0), ("B", 2.0)]


@pytest.mark.parametrize(
    ("date", "rule"),
    [
        ("03/04/2020", "unparseable_date"),  # the month may be either
        ("13/13/2020", "unparseable_date"),
        ("2020-01-31 16:00:00", "intraday_bar"),
        ("1580428860000", "intraday_bar"),  # a minute past midnight
    ],
)
def test_date_that_may_be_read_in_two_ways_is_refused(date, rule):
    tables = market_tables(LandedFile("A.csv", f"date,close\n{date},1\n".encode()))
    assert tables.quarantine["rule"].to_list() == [rule]


def test_file_in_which_months_and_days_change_places_is_refused():
    tables = market_tables(LandedFile("A.csv", b"date,close\n01/31/2020,1\n30/01/2020,1\n"))
    assert tables.quarantine["rule"].to_list() == ["unparseable_date"] * 2


INTRADAY = {
    "clock": "date,close\n2020-01-30 00:00:00,1\n2020-01-30 01:00:00,2\n2020-01-31,3\n",
    "milliseconds": "time,close\n1580342400000,1\n1580346000000,2\n1580428800000,3\n",
    "day and clock": "date,close\n2020-01-30,1\n2020-01-30 01:00:00,2\n2020-01-31,3\n",
    "own column": "<DATE>,<TIME>,<CLOSE>\n20200130,000000,1\n20200130,010000,2\n20200131,000000,3\n",
}


@pytest.mark.parametrize("form", INTRADAY)
def test_midnight_bar_among_bars_of_its_day_is_refused(form):
    tables = market_tables(LandedFile("A.csv", INTRADAY[form].encode()))
    assert tables.quarantine.select("line", "rule").rows() == [(2, "intraday_bar"), (3, "intraday_bar")]
    assert tables.clean_bars["close"].to_list() == [3.0]


def test_adjusted_close_of_an_early_yahoo_file_is_read():
    _, content = LAYOUTS["Yahoo Finance of 2003, as in Matplotlib"]
    bars = market_tables(LandedFile("AAPL.csv", content.encode())).clean_bars
    assert bars.sort("session")["adj_close"].to_list() == [5.0, 11.0]


def test_bar_with_a_time_of_day_in_its_own_column_is_refused():
    content = b"<TICKER>,<PER>,<DATE>,<TIME>,<CLOSE>\nA,5,20200131,153000,1\n"
    assert market_tables(LandedFile("a.txt", content)).quarantine["rule"].to_list() == ["intraday_bar"]


def test_same_bar_twice_without_a_symbol_column_is_one_symbol():
    tables = market_tables(LandedFile("A.csv", b"date,close\n2020-01-02,1\n2020-01-02,1\n"))
    assert tables.quarantine["rule"].to_list() == ["duplicate"]
