import polars as pl
import pytest
from polars.testing import assert_frame_equal

from nvtrader_pipelines.market.sources import UnreadableFile
from nvtrader_pipelines.market.sources.csv_text import read_csv_text
from nvtrader_pipelines.market.sources.dialects import rows_from_csv
from nvtrader_pipelines.market.tables import DELIVERED


def rows_of(text, file="prices.csv"):
    return rows_from_csv(read_csv_text(text.encode()), file).rows


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
    with pytest.raises(UnreadableFile) as refusal:
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


@pytest.mark.parametrize("header", ["code", "Instrument", "asset", "pair", "security", "ts_code", "coin", "ISIN"])
def test_column_of_symbols_is_read_by_its_common_names(header):
    rows = rows_of(f"date,{header},close\n2020-01-02,600000,10\n2020-01-03,000001,20\n", "k_data.csv")
    assert rows["symbol"].to_list() == ["600000", "000001"]


ADJUSTED = [
    "Adj. Close",
    "Adj Close*",
    "adj-close",
    "Adjusted",
    "adjusted close",
    "adjustedClose",
    "close_adj",
    "closeadj",
]
ADJUSTED += ["adjusted_price", "adjcp", "Close (adj.)", "Adjusted Closing Price", "hfq", "qfq_close", "close_hfq"]


@pytest.mark.parametrize("header", ADJUSTED)
def test_adjusted_close_is_read_by_its_common_names(header):
    wide = f"Price,Close,{header}\nTicker,KO,KO\nDate,,\n2020-01-02,10,5\n"
    for text in (f"date,close,{header}\n2020-01-02,10,5\n", wide):
        assert rows_of(text, "KO.csv")["adj_close"].to_list() == ["5"]


@pytest.mark.parametrize(
    ("columns", "rule"),
    [
        ("adj_close_usd", "unknown_column"),
        ("split adjusted close", "unknown_column"),
        ("adj close,close_adj", "repeated_column"),
        ("hfq,qfq", "repeated_column"),
    ],
)
def test_column_that_may_be_the_adjusted_close_is_refused(columns, rule):
    with pytest.raises(UnreadableFile) as refusal:
        rows_of(f"date,close,{columns}\n2020-01-02,10" + ",5" * len(columns.split(",")), "KO.csv")
    assert refusal.value.rule == rule


def delivered(column, *values):
    rows = "".join(f"2020-01-0{day},{value},10\n" for day, value in enumerate(values, start=2))
    return rows_from_csv(read_csv_text(f"date,{column},close\n{rows}".encode()), "KO.csv")


@pytest.mark.parametrize("values", [("KO", "PEP"), ("PEP", "PEP"), ("600000", "000001"), ("Coca Cola", "Pepsi Co")])
def test_unknown_column_of_text_is_refused_by_its_name(values):
    with pytest.raises(UnreadableFile, match="Aktie") as refusal:
        delivered("Aktie", *values)
    assert refusal.value.rule == "unknown_symbol"


@pytest.mark.parametrize("column", ["Stock Symbol", "BBG Ticker", "security_code", "cusip", "product_id", "permno"])
def test_numbers_that_may_be_symbols_are_refused_by_their_column(column):
    with pytest.raises(UnreadableFile, match=column):
        delivered(column, "600000", "600001")


@pytest.mark.parametrize("coarse", ["security", "instrument", "contract", "pair"])
def test_column_of_symbols_beside_a_finer_one_is_refused(coarse):
    with pytest.raises(UnreadableFile) as refusal:
        rows_of(f"date,{coarse},isin,close\n2020-01-02,common,US1,3\n2020-01-02,common,US2,2\n", "x.csv")
    assert refusal.value.rule == "unknown_symbol"


@pytest.mark.parametrize("second", ["ko", ""])
def test_column_of_text_that_agrees_with_the_file_name_confirms_it(second):
    read = delivered("Aktie", "KO", second)
    assert (read.rows["symbol"].to_list(), read.guessed_symbol, read.unused_columns) == (["KO", "KO"], None, ())


@pytest.mark.parametrize(
    ("column", "values"),
    [
        ("currency", ("USD", "USD")),
        ("Source", ("yahoo", "yahoo")),
        ("note", ("", "dividend")),
        ("Company", ("Coca Cola", "Coca Cola")),
        ("weekday", ("Thu", "Fri")),
        ("Change %", ("1.2%", "-3%")),
        ("market_cap", ("1.2B", "1,300M")),
        ("ex_date", ("31-Jan-20", "")),
        ("adj_factor", ("1.0", "2.0")),
        ("closeunadj", ("10", "20")),
        ("is_open", ("True", "False")),
    ],
)
def test_column_that_names_no_symbol_is_named_as_unused(column, values):
    read = delivered(column, *values)
    assert (read.guessed_symbol, read.unused_columns) == ("KO", (column,))


def test_unused_columns_of_a_wide_table_are_named():
    text = "Price,Close,Dividends,Dividends\nTicker,KO,KO,PEP\nDate,,,\n2020-01-02,10,0,0\n"
    read = rows_from_csv(read_csv_text(text.encode()), "p.csv")
    assert read.rows["symbol"].to_list() == ["KO"]
    assert (read.guessed_symbol, read.unused_columns) == (None, ("Dividends",))
