import datetime as dt
import io

import polars as pl
import pytest

from nvtrader_pipelines.market.series_files import holds_series, ingest_series
from nvtrader_pipelines.market.sources.delivery import LandedFile
from nvtrader_pipelines.market.tables import DELIVERIES, SERIES

AT = dt.datetime(2020, 2, 3, 12, tzinfo=dt.UTC)
HEADER = "symbol,published,field,value\n"


def landed(text: str, name="a.csv") -> LandedFile:
    return LandedFile(f"series/{name}", text.encode())


def test_rows_are_read_in_any_order_of_columns():
    file = landed("Value; field ;published;SYMBOL\n 1.5;PE;2020-01-31; brk-b \n15.1;vix;2020-01-31T16:15;\n", "a.txt")
    found = ingest_series([file], AT)
    stamp = dt.datetime(2020, 1, 31, 21, 15, tzinfo=dt.UTC)
    assert found.rows.schema == SERIES
    assert found.rows.rows() == [
        ("BRK-B", "pe", dt.date(2020, 1, 31), None, 1.5, "series/a.txt", 2),
        ("", "vix", dt.date(2020, 1, 31), stamp, 15.1, "series/a.txt", 3),
    ]
    row = found.delivery_rows.row(0, named=True)
    assert found.delivery_rows.schema == DELIVERIES
    assert (row["source"], row["n_rows"], row["years"], row["rule"], row["calendar"]) == ("series", 2, [], None, None)


@pytest.mark.parametrize(
    ("line", "rule"),
    [
        ("AAA,,pe,1", "missing_date"),
        ("AAA,31.01.2020,pe,1", "unparseable_date"),
        ("AAA,0001-01-01T00:00:00+14:00,pe,1", "unparseable_date"),
        ("AAA,2020-02-05,pe,1", "future_date"),
        ("AAA,2020-01-31,p/e,1", "odd_field"),
        ("AAA,2020-01-31,pe,.", "unparseable_number"),
        ("AAA,2020-01-31,pe,inf", "unparseable_number"),
        ("A A,2020-01-31,pe,1", "odd_symbol"),
        ("AAA,2020-01-30,PE,2", "repeated_value"),
        ("AAA,2020-01-31,pe", "malformed_row"),
    ],
)
def test_one_wrong_line_refuses_its_file_whole(line, rule):
    good = landed(f"{HEADER}BBB,2020-01-30,pe,1\n", "b.csv")
    found = ingest_series([landed(f"{HEADER}AAA,2020-01-30,pe,1\n{line}\n"), good], AT)
    assert found.delivery_rows.select("file", "n_rows", "rule").rows() == [
        ("series/a.csv", 0, rule),
        ("series/b.csv", 1, None),
    ]
    assert found.delivery_rows["reason"][0].startswith("line 3 must ")
    assert found.rows["symbol"].to_list() == ["BBB"]


def test_other_value_than_an_earlier_file_refuses_the_later_one():
    first, same, other = (f"{HEADER}AAA,2020-01-30,pe,{value}\n" for value in (1, 1, 2))
    found = ingest_series([landed(other, "c.csv"), landed(first), landed(same, "b.csv")], AT)
    assert found.delivery_rows["rule"].to_list() == [None, None, "other_value"]
    assert found.rows["file"].to_list() == ["series/a.csv", "series/b.csv"]


@pytest.mark.parametrize(
    ("text", "rule"), [("", "empty_file"), (HEADER, "empty_file"), ("date,close\n2020-01-30,1\n", "unknown_header")]
)
def test_file_without_series_is_refused(text, rule):
    assert ingest_series([landed(text)], AT).delivery_rows["rule"].to_list() == [rule]


def test_parquet_with_types_is_read_as_text_is():
    days = [dt.date(2020, 1, 30), dt.date(2020, 1, 31)]
    frame = pl.DataFrame({"symbol": [None, None], "published": days, "field": ["vix", "vix"], "value": [15.5, 18]})
    for published in (pl.Date, pl.Datetime("ns"), pl.Datetime("us", "UTC")):
        buffer = io.BytesIO()
        frame.with_columns(pl.col("published").cast(published)).write_parquet(buffer)
        file = LandedFile("series/a.parquet", buffer.getvalue())
        assert holds_series(file)
        read = ingest_series([file], AT).rows.select("symbol", "published", "published_at", "value")
        assert read.rows() == [("", days[0], None, 15.5), ("", days[1], None, 18.0)]


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("a.csv", "field,value,symbol,published\n\xff\n", True),
        ("a.csv", "symbol,date,close\n", False),
        ("a.csv", "symbol,published,field,value,unit\n", False),
        ("a.csv", "", False),
        ("a.parquet", "PAR1 cut", False),
        ("a.xlsx", HEADER, False),
    ],
)
def test_files_of_series_are_known_by_their_header(name, content, expected):
    assert holds_series(LandedFile(name, content.encode("latin-1"))) is expected
