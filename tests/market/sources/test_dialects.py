import polars as pl
import pytest
from polars.testing import assert_frame_equal

from nvtrader_pipelines.market.sources import UnreadableFile
from nvtrader_pipelines.market.sources.csv_text import read_csv_text
from nvtrader_pipelines.market.sources.dialects import rows_from_csv, symbol_of_file
from nvtrader_pipelines.market.tables import DELIVERED


def rows_of(text, file="prices.csv"):
    return rows_from_csv(read_csv_text(text.encode()), file)


def bar(line, symbol, date, *numbers):
    return pl.DataFrame([(line, symbol, date, *numbers)], schema=DELIVERED, orient="row")


APPLE = ("1.5", "2", "1", "1.75", "100", "1.7")  # open, high, low, close, volume, adj_close


@pytest.mark.parametrize(
    ("dialect", "text", "file"),
    [
        (
            "canonical",
            "symbol,date,open,high,low,close,volume,adj_close\nAAPL,2020-01-02,1.5,2,1,1.75,100,1.7\n",
            "prices.csv",
        ),
        (
            "FinRL with an index and a day",
            ",date,open,high,low,close,adjcp,volume,tic,day\n0,2020-01-02,1.5,2,1,1.75,1.7,100,AAPL,3\n",
            "dow.csv",
        ),
        ("FinRL", "date,open,high,low,close,adjcp,volume,tic\n2020-01-02,1.5,2,1,1.75,1.7,100,AAPL\n", "dow.csv"),
        (
            "yfinance, one symbol",
            "Date,Open,High,Low,Close,Adj Close,Volume\n2020-01-02,1.5,2,1,1.75,1.7,100\n",
            "AAPL.csv",
        ),
        (
            "yfinance, long",
            "Date,Ticker,Adj Close,Close,High,Low,Open,Volume\n2020-01-02,AAPL,1.7,1.75,2,1,1.5,100\n",
            "x.csv",
        ),
        (
            "semicolons",
            "symbol;date;open;high;low;close;volume;adj_close\nAAPL;2020-01-02;1.5;2;1;1.75;100;1.7\n",
            "x.csv",
        ),
        (
            "byte order mark and Windows line ends",
            "\ufeffsymbol,date,open,high,low,close,volume,adj_close\r\nAAPL,2020-01-02,1.5,2,1,1.75,100,1.7\r\n",
            "x.csv",
        ),
        (
            "quoted",
            '"symbol","date","open","high","low","close","volume","adj_close","name"\n'
            '"AAPL","2020-01-02","1.5","2","1","1.75","100","1.7","Apple, Inc."\n',
            "x.csv",
        ),
    ],
)
def test_long_dialects_read_the_same(dialect, text, file):
    assert_frame_equal(rows_of(text, file), bar(2, "AAPL", "2020-01-02", *APPLE))


WIDE = (
    "Price,Adj Close,Adj Close,Close,Close,High,High,Low,Low,Open,Open,Volume,Volume\n"
    "Ticker,AAPL,DOW,AAPL,DOW,AAPL,DOW,AAPL,DOW,AAPL,DOW,AAPL,DOW\n"
    "Date,,,,,,,,,,,,\n"
    "2020-01-02,1.7,,1.75,,2,,1,,1.5,,100,\n"
    "2020-01-03,2.7,3.7,2.75,3.75,3,4,2,3,2.5,3.5,200,300\n"
)


def test_wide_yfinance_table_gives_one_row_per_listed_bar():
    expected = pl.concat(
        [
            bar(4, "AAPL", "2020-01-02", *APPLE),
            bar(5, "AAPL", "2020-01-03", "2.5", "3", "2", "2.75", "200", "2.7"),
            bar(5, "DOW", "2020-01-03", "3.5", "4", "3", "3.75", "300", "3.7"),
        ]
    )
    assert_frame_equal(rows_of(WIDE), expected)


def test_wide_table_grouped_by_ticker_reads_the_same():
    first, second, *rest = WIDE.split("\n")
    swapped = "\n".join(["Ticker" + second.removeprefix("Ticker"), "Price" + first.removeprefix("Price"), *rest])
    assert_frame_equal(rows_of(swapped), rows_of(WIDE))


def test_wide_table_of_one_symbol_is_read():
    text = "Price,Close,High,Low,Open,Volume\nTicker,AAPL,AAPL,AAPL,AAPL,AAPL\nDate,,,,,\n2020-01-02,1.75,2,1,1.5,100\n"
    assert_frame_equal(rows_of(text), bar(4, "AAPL", "2020-01-02", *APPLE[:5], None))


def test_absent_columns_are_null():
    assert_frame_equal(
        rows_of("date,close\n2020-01-02,3\n", "ko.csv"), bar(2, "KO", "2020-01-02", *[None] * 3, "3", None, None)
    )


def test_header_without_date_or_close_is_refused():
    with pytest.raises(UnreadableFile, match="when, price") as refusal:
        rows_of("when,price\n2020-01-02,3\n")
    assert refusal.value.rule == "unknown_header"


def test_line_numbers_count_blank_lines():
    rows = rows_of("symbol,date,close\n\nA,2020-01-02,1\n   \nA,2020-01-03,2\n")
    assert rows["line"].to_list() == [3, 5]


@pytest.mark.parametrize("broken", ["A,2020-01-03,1,234.5", "A,2020-01-03", 'A,"2020-01-03,2', "A,2020-01-03,2,,,,"])
def test_line_that_does_not_split_is_stored_whole(broken):
    rows = rows_of(f"symbol,date,close\nA,2020-01-02,1\n{broken}\nA,2020-01-06,3\n")
    assert rows["symbol"].to_list() == ["A", broken, "A"]
    assert rows["close"].to_list() == ["1", None, "3"]


@pytest.mark.parametrize(
    ("file", "symbol"),
    [("AAPL.csv", "AAPL"), ("brk-b.csv", "BRK-B"), ("in/aapl_2015-2020.csv", "AAPL"), ("msft (1).csv", "MSFT")],
)
def test_symbol_is_read_from_the_file_name(file, symbol):
    assert symbol_of_file(file) == symbol
