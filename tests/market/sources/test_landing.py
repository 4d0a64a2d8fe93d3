import datetime as dt
import io

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from nvtrader_pipelines.market.sources import LandedFile, LandingSource, UnreadableFile
from tests.markets import synthetic_bars


def read(content, name="prices.csv"):
    (delivery,) = LandingSource().deliveries([LandedFile(name, content)])
    return delivery.read().rows


def parquet(frame):
    buffer = io.BytesIO()
    frame.write_parquet(buffer)
    return buffer.getvalue()


def test_digest_depends_on_content_and_not_on_name():
    one, two, other = LandingSource().deliveries(
        [LandedFile("a.csv", b"x"), LandedFile("b.csv", b"x"), LandedFile("c.csv", b"y")]
    )
    assert one.digest == two.digest != other.digest
    assert (one.source, one.file, one.size) == ("landing", "a.csv", 1)


def test_deliveries_are_sorted_by_name():
    landed = [LandedFile("b.csv", b"x"), LandedFile("a.csv", b"x")]
    assert [delivery.file for delivery in LandingSource().deliveries(landed)] == ["a.csv", "b.csv"]


def test_parquet_and_csv_read_the_same():
    bars = synthetic_bars(n_sessions=5)
    from_csv, from_parquet = read(bars.write_csv().encode()), read(parquet(bars), "prices.parquet")
    assert_frame_equal(from_csv.drop("line"), from_parquet.drop("line"))


def test_dates_in_parquet_may_be_dates_or_timestamps():
    bars = synthetic_bars(n_sessions=2, n_symbols=1)
    days = bars.with_columns(pl.col("date").str.to_date())
    stamps = days.with_columns(pl.col("date").cast(pl.Datetime("ns")))
    assert read(parquet(days), "p.parquet")["date"].to_list() == bars["date"].to_list()
    assert [text[:19] for text in read(parquet(stamps), "p.parquet")["date"]] == [
        f"{day} 00:00:00" for day in bars["date"]
    ]


@pytest.mark.parametrize(
    ("name", "content", "rule"),
    [
        ("empty.csv", b"", "empty_file"),
        ("blank.csv", b"\n  \n", "empty_file"),
        ("header.csv", b"symbol,date,close\n", "empty_file"),
        ("empty.parquet", b"", "empty_file"),
        ("no_rows.parquet", parquet(synthetic_bars().head(0)), "empty_file"),
        ("utf16.csv", "symbol,date,close\nA,2020-01-02,1\n".encode("utf-16"), "wrong_encoding"),
        ("latin.csv", "symbol,date,close,währung\nA,2020-01-02,1,x\n".encode("latin-1"), "wrong_encoding"),
        ("cut.parquet", parquet(synthetic_bars())[:-100], "truncated_parquet"),
        ("half.parquet", parquet(synthetic_bars())[:500], "truncated_parquet"),
        ("text.parquet", b"symbol,date,close\nA,2020-01-02,1\n", "truncated_parquet"),
        ("notes.md", b"hello", "unknown_format"),
        ("notes.txt", b"hello", "unknown_header"),
        ("wide.csv", b"date,close" + b",x" * 10_000 + b"\n", "large_header"),
        ("long.csv", b"date,close," + b"x" * (1 << 20) + b"\n", "large_header"),
        (
            "KO.csv",
            b"date,close,n\n" + b"".join(b"2020-01-0%d,%d,1\n" % (k // 2, k) for k in range(2, 10)),
            "several_symbols",
        ),
        ("several.csv", b"date,close,Aktie\n2020-01-02,1,A\n2020-01-02,2,B\n", "unknown_symbol"),
        ("data.csv", b"date,close\n2020-01-02,1\n", "unknown_symbol"),
        ("HistoricalData_1700000000000.csv", b"date,close\n2020-01-02,1\n", "unknown_symbol"),
        ("sheet.csv", b"a,b\n1,2\n", "unknown_header"),
    ],
)
def test_unreadable_file_is_refused_with_rule_and_reason(name, content, rule):
    with pytest.raises(UnreadableFile) as refusal:
        read(content, name)
    assert refusal.value.rule == rule
    assert len(refusal.value.reason.split()) > 5


@pytest.mark.parametrize(
    "line", ['"A"x,2020-01-02,1', 'A,2020-01-02,"1" ', '[{"a":"A","b":1}', 'A,2020-01-02,x"1,2"', 'A,2020-01-02,5"']
)
def test_line_with_a_misplaced_quote_is_stored_whole(line):
    rows = read(f"symbol,date,close\n{line}\nA,2020-01-03,2\n".encode())
    assert rows.select("line", "symbol", "close").rows() == [(2, line, None), (3, "A", "2")]


def test_column_named_twice_is_refused():
    with pytest.raises(UnreadableFile) as refused:
        read(b"symbol,date,Close,close\nA,2020-01-02,1,2\n")
    assert refused.value.rule == "repeated_column"


def test_line_of_a_byte_order_mark_is_blank():
    assert read(b"symbol,date,close\n\xef\xbb\xbf\nA,2020-01-02,1\n")["line"].to_list() == [3]


def frame(**columns):
    days = ["2020-01-02", "2020-01-03"]
    return pl.DataFrame({"date": days, "symbol": ["MSFT"] * 2, "close": [4.0, 4.5], "adj_close": [1.0, 2.0], **columns})


@pytest.mark.parametrize(
    "kind", [pl.Categorical, pl.Enum(["MSFT", "1.0", "2.0", "2020-01-02", "2020-01-03"]), pl.Binary]
)
@pytest.mark.parametrize("name", ["symbol", "date", "adj_close"])
def test_parquet_column_of_any_text_type_is_read(name, kind):
    table = frame().with_columns(pl.col(name).cast(pl.String).cast(kind))
    assert_frame_equal(read(parquet(table), "bars.parquet"), read(parquet(frame()), "bars.parquet"))


@pytest.mark.parametrize(
    "column",
    [
        {"symbol": [True, False]},
        {"symbol": [600000.0, 1.0]},
        {"symbol": [b"\xff", b"\xfe"]},
        {"adj_close": [[1.0], [2.0]]},
        {"adj_close": [True, False]},
        {"close": [{"last": 1.0}, {"last": 2.0}]},
        {"date": [dt.timedelta(days=1)] * 2},
        {"Code": [[1], [2]]},
    ],
)
def test_parquet_column_without_text_is_refused_by_its_name(column):
    with pytest.raises(UnreadableFile) as refused:
        read(parquet(frame(**column)), "bars.parquet")
    assert refused.value.rule == "unreadable_column"
    assert f"'{next(iter(column))}'" in refused.value.reason


def test_parquet_column_of_our_own_names_is_no_trouble():
    extra = frame(line=[7, 8], column_0=[1, 2])
    assert_frame_equal(read(parquet(extra), "bars.parquet"), read(parquet(frame()), "bars.parquet"))


def test_unknown_parquet_column_without_text_is_named_as_unused():
    (delivery,) = LandingSource().deliveries(
        [LandedFile("p.parquet", parquet(frame(flags=[[1], [2]], up=[True, False])))]
    )
    assert delivery.read().unused_columns == ("flags", "up")


def test_json_named_csv_is_refused():
    with pytest.raises(UnreadableFile) as refused:
        read(b'[{"date":"2020-01-02","close":1}]')
    assert refused.value.rule == "unknown_header"
