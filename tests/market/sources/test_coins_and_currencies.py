"""Files of markets other than stocks, as their vendors write them."""

import datetime as dt
import io

import polars as pl
import pytest

from nvtrader_pipelines.market.cleaning import CORRECTED
from nvtrader_pipelines.market.sources import LandedFile
from tests.markets import market_tables

DAY, SATURDAY = dt.date(2020, 1, 31), dt.date(2020, 2, 1)
COINS = {  # file name, content, symbol; closes 9350 and 9392
    "Yahoo Finance": (
        "BTC-USD.csv",
        "Date,Open,High,Low,Close,Volume,Dividends,Stock Splits\n"
        "2020-01-31 00:00:00+00:00,9508,9521,9230,9350,29432489719,0,0\n"
        "2020-02-01 00:00:00+00:00,9346,9439,9313,9392,25922656496,0,0\n",
        "BTC-USD",
    ),
    "CoinGecko": (
        "btc-usd-max.csv",
        "snapped_at,price,market_cap,total_volume\n2020-01-31 00:00:00 UTC,9350,1.7e11,29432489719\n"
        "2020-02-01 00:00:00 UTC,9392,1.7e11,25922656496\n",
        "BTC-USD",
    ),
    "CryptoDataDownload": (
        "Bitstamp_BTCUSD_d.csv",
        "https://www.CryptoDataDownload.com\nunix,date,symbol,open,high,low,close,Volume BTC,Volume USD\n"
        "1580515200,2020-02-01 00:00:00,BTC/USD,9346,9439,9313,9392,1000,9e6\n"
        "1580428800,2020-01-31 00:00:00,BTC/USD,9508,9521,9230,9350,1000,9e6\n",
        "BTCUSD",
    ),
    "Kraken, with a header": (
        "XBTUSD_1440.csv",
        "time,open,high,low,close,volume,count\n1580428800,9508,9521,9230,9350,1000.5,4000\n"
        "1580515200,9346,9439,9313,9392,1000.5,3000\n",
        "XBTUSD",
    ),
    "Binance": (
        "BTCUSDT-1d-2020-01.csv",
        "open_time,open,high,low,close,volume,close_time\n1580428800000,9508,9521,9230,9350,1000,1580515199999\n"
        "1580515200000,9346,9439,9313,9392,1000,1580601599999\n",
        "BTCUSDT",
    ),
    "CoinMarketCap, whose name is the number of a currency": (
        "Bitcoin_1_31_2020-2_1_2020_historical_data_coinmarketcap.csv",
        "timeOpen;timeClose;timeHigh;timeLow;name;open;high;low;close;volume;marketCap;timestamp\n"
        '"2020-01-31T00:00:00.000Z";"";"";"";"2781";9508;9521;9230;9350;1000;1;"2020-01-31T23:59:59.999Z"\n'
        '"2020-02-01T00:00:00.000Z";"";"";"";"2781";9346;9439;9313;9392;1000;1;"2020-02-01T23:59:59.999Z"\n',
        "BITCOIN",
    ),
    "CoinMarketCap on Kaggle, whose symbol precedes the name": (
        "coin_Bitcoin.csv",
        "SNo,Name,Symbol,Date,High,Low,Open,Close,Volume,Marketcap\n"
        "1,Bitcoin,BTC,2020-01-31 23:59:59,9521,9230,9508,9350,1000,1\n"
        "2,Bitcoin,BTC,2020-02-01 23:59:59,9439,9313,9346,9392,1000,1\n",
        "BTC",
    ),
}


@pytest.mark.parametrize("source", COINS)
def test_file_of_a_coin_gives_its_bars(source):
    name, content, symbol = COINS[source]
    tables = market_tables(LandedFile(name, content.encode()), calendar="24/7")
    assert tables.quarantine.is_empty()
    assert tables.clean_bars.select("symbol", "session", "close").rows() == [
        (symbol, DAY, 9350.0),
        (symbol, SATURDAY, 9392.0),
    ]


@pytest.mark.parametrize(
    ("name", "symbol"),
    [
        ("EUR_USD.csv", "EURUSD"),
        ("EUR_USD Historical Data.csv", "EURUSD"),  # investing.com
        ("EUR-USD.csv", "EUR-USD"),
        ("EURUSD.csv", "EURUSD"),
        ("eurusd_d.csv", "EURUSD"),  # Stooq
        ("EURUSD=X.csv", "EURUSD=X"),  # Yahoo Finance
        ("IBM_adj.csv", "IBM"),
    ],
)
def test_name_of_a_file_gives_its_pair_of_currencies(name, symbol):
    tables = market_tables(LandedFile(name, b"date,close\n2020-01-31,1.1\n"), calendar="24/5")
    assert tables.clean_bars.select("symbol", "close", "volume").rows() == [(symbol, 1.1, None)]


def test_pair_of_currencies_in_a_column_is_joined():
    content = b"symbol,date,close\nEUR/USD,2020-01-31,1.1\neth/btc,2020-01-31,0.02\nBRK/B,2020-01-31,200\n"
    tables = market_tables(LandedFile("rates.csv", content), calendar="24/5")
    assert tables.clean_bars["symbol"].to_list() == ["ETHBTC", "EURUSD"]
    assert tables.quarantine.select("symbol", "rule").rows() == [("BRK/B", "odd_symbol")]


def test_bar_of_a_sunday_is_refused_by_the_name_of_the_calendar():
    tables = market_tables(LandedFile("EURUSD.csv", b"date,close\n2020-02-02,1.1\n"), calendar="24/5")
    assert tables.quarantine["rule"].to_list() == ["unknown_session"]
    assert "24/5" in tables.quarantine["reason"][0]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("eurofxref-hist.csv", "Date,USD,JPY,\n2020-01-31,1.1052,120.35,\n"),  # ECB
        ("XBTUSD_1440.csv", "1580428800,9508,9521,9230,9350,1000.5,4000\n"),  # Kraken
        ("DAT_ASCII_EURUSD_M1_2020.csv", "20200130 170000;1.10;1.11;1.09;1.105;0\n"),  # HistData
        ("EURUSD_Candlestick_1_D_BID.csv", "Gmt time,Open,High,Low,Close\n31.01.2020 00:00:00.000,1,1,1,1\n"),
    ],
)
def test_file_whose_header_names_no_date_and_close_is_refused(name, content):
    tables = market_tables(LandedFile(name, content.encode()), calendar="24/5")
    assert tables.quarantine.select("line", "rule").rows() == [(0, "unknown_header")]


@pytest.mark.parametrize(
    ("calendar", "date", "session"),
    [
        ("XNYS", "2020-01-31 05:00:00+00:00", DAY),
        ("XNYS", "2019-07-31T04:00:00Z", dt.date(2019, 7, 31)),  # in summer
        ("XNYS", "2020-01-31 00:00:00+00:00", DAY),  # its own midnight
        ("XNYS", "1580446800", DAY),
        ("XNYS", "2020-01-31 21:00:00+00:00", None),
        ("XNYS", "2020-01-31 05:00:00", None),
        ("24/7", "2020-01-30T19:00:00-05:00", DAY),
        ("24/7", "2020-01-31T18:59:59.999-05:00", DAY),
        ("24/7", "2020-01-31T05:00+05:00", DAY),
        ("24/7", "2020-01-31 05:00:00+00:00", None),
        ("24/7", "1580515199999", DAY),
        ("24/5", "2020-01-30 22:00:00+00:00", None),  # five in the afternoon in New York
    ],
)
def test_moment_with_a_zone_names_the_day_of_the_calendar(calendar, date, session):
    tables = market_tables(LandedFile("A.csv", f"date,close\n{date},1\n".encode()), calendar=calendar)
    assert tables.clean_bars["session"].to_list() == ([session] if session else [])
    assert tables.quarantine["rule"].to_list() == ([] if session else ["intraday_bar"])


def test_year_of_a_row_is_that_of_the_calendar_day():
    tables = market_tables(LandedFile("A.csv", b"date,close\n2020-12-31T19:00:00-05:00,1\n"), calendar="24/7")
    assert tables.bars["year"].to_list() == tables.clean_bars["year"].to_list() == [2021]


def test_moments_of_parquet_name_the_days_of_the_calendar():
    days = pl.Series("date", [dt.datetime(2020, 1, 31, tzinfo=dt.UTC)]).dt.convert_time_zone("America/New_York")
    buffer = io.BytesIO()
    pl.DataFrame({"date": days, "close": [1.0]}).write_parquet(buffer)
    tables = market_tables(LandedFile("A.parquet", buffer.getvalue()), calendar="24/7")
    assert tables.clean_bars["session"].to_list() == [DAY]


@pytest.mark.parametrize("zone", ["-05:00", "+03:00"])
def test_hourly_bars_in_any_zone_are_refused(zone):
    hours = [f"2020-01-30T{hour:02}:00:00{zone},1" for hour in range(24)]
    tables = market_tables(LandedFile("A.csv", "\n".join(["date,close", *hours]).encode()), calendar="24/7")
    assert tables.quarantine["rule"].to_list() == ["intraday_bar"] * 24


def test_later_file_of_a_coin_adds_bars_and_corrects_others():
    first = "symbol,date,close\nBTC,2020-01-31,9350\nBTC,2020-02-01,9300\n"  # ends on a Saturday that is not over
    later = "symbol,date,close\nBTC,2020-02-01,9392\nBTC,2020-02-02,9344\nBTC,2020-02-03,9293\n"
    tables = market_tables(LandedFile("a.csv", first.encode()), LandedFile("b.csv", later.encode()), calendar="24/7")
    assert tables.clean_bars.select("session", "close", "file").rows() == [
        (DAY, 9350.0, "a.csv"),
        (SATURDAY, 9392.0, "b.csv"),
        (dt.date(2020, 2, 2), 9344.0, "b.csv"),
        (dt.date(2020, 2, 3), 9293.0, "b.csv"),
    ]
    assert tables.quarantine.select("file", "line", "rule", "reason").rows() == [
        ("a.csv", 3, "duplicate", CORRECTED),
    ]
    assert tables.returns["span"].drop_nulls().to_list() == [1, 1, 1]
