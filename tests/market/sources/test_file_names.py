import pytest

from nvtrader_pipelines.market.sources import UnreadableFile
from nvtrader_pipelines.market.sources.file_names import symbol_of_file

EXCHANGES = [
    "NASDAQ",
    "NYSE",
    "AMEX",
    "BATS",
    "CBOE",
    "OANDA",
    "FX_IDC",
    "SP",
    "TVC",
    "NSE",
    "BSE",
    "CME_MINI",
    "INDEX",
]
EXCHANGES += ["BITSTAMP", "BINANCE", "CBOE_DLY", "NASDAQ_DLY", "FX", "COINBASE"]


@pytest.mark.parametrize(
    ("file", "symbol"),
    [
        ("AAPL.csv", "AAPL"),
        ("brk-b.csv", "BRK-B"),
        ("BRK.B.csv", "BRK.B"),
        ("0700.HK.csv", "0700.HK"),
        ("600000.csv", "600000"),
        ("in/aapl_2015-2020.csv", "AAPL"),
        ("aapl_20150101_20201231.csv", "AAPL"),
        ("msft (1).csv", "MSFT"),
        ("aapl_us_d.csv", "AAPL"),
        ("AAPL_1d.csv", "AAPL"),
        ("AAPL_daily.csv", "AAPL"),
        ("AAPL(1).csv", "AAPL"),
        ("daily_IBM.csv", "IBM"),
        ("EUR_USD.csv", "EURUSD"),
        ("NYSE_BRK.B, 1D.csv", "BRK.B"),
        ("BINANCE_BTCUSDT.P, 1D_1a2b3.csv", "BTCUSDT.P"),
        *((f"{exchange}_AAPL, 1D.csv", "AAPL") for exchange in EXCHANGES),
        ("nasdaq_aapl,1D (1).csv", "AAPL"),
        ("NASDAQ_AAPL, W.csv", "AAPL"),
    ],
)
def test_symbol_is_read_from_the_file_name(file, symbol):
    assert symbol_of_file(file) == symbol


NOT_ONE_SYMBOL = [
    "NASDAQ_AAPL",
    "NASDAQ AAPL",
    "apple inc",
    "tech_giants",
    "my_prices",
    "k_data",
    "sample",
    "HistoricalQuotes",
    "BRK_B",
    "AAPL_MSFT",
]
NOT_ONE_SYMBOL += ["Apple Stock Price History", "S&P 500 Historical Data", "coin_Bitcoin", "coin_BTC", "stock-prices"]
NOT_ONE_SYMBOL += [
    "all_stocks_5yr",
    "NSE_M_M, 1D",
    "CME_MINI_ES1!, 1D",
    "data1",
    "bars",
    "2020-01-02",
    "20200102",
    "_",
    "",
]


@pytest.mark.parametrize("name", NOT_ONE_SYMBOL)
def test_file_name_that_is_not_of_one_symbol_is_refused(name):
    with pytest.raises(UnreadableFile) as refused:
        symbol_of_file(f"{name}.csv")
    assert refused.value.rule == "unknown_symbol"
