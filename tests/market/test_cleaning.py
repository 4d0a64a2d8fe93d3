import datetime as dt
import io

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from nvtrader_pipelines.market.cleaning import files_without_good_rows
from nvtrader_pipelines.market.rules import ROW_RULES, SESSION_NOT_ENDED
from nvtrader_pipelines.market.sources import LandedFile
from nvtrader_pipelines.market.tables import CLEAN_BARS, QUARANTINE
from tests.markets import csv_file, market_tables, synthetic_bars

HEADER = "symbol,date,open,high,low,close,volume,adj_close"
GOOD = ["KO,2020-01-02,10,11,9,10,100,9", "KO,2020-01-06,10,11,9,10.5,100,9.5"]


def csv(*rows, name="p.csv"):
    return LandedFile(name, "\n".join([HEADER, *rows]).encode())


def rules(tables):
    return tables.quarantine.select("line", "rule").rows()


BROKEN_ROWS = [
    ("malformed_row", "KO,2020-01-03,1,000,11,9,10,100,9", "KO,2020-01-03,1,000,11,9,10,100,9"),
    ("wrong_encoding", "K\udce9,2020-01-03,10,11,9,10,100,9", "symbol=K\N{REPLACEMENT CHARACTER}"),
    ("odd_symbol", "K$O,2020-01-03,10,11,9,10,100,9", "K$O"),
    ("odd_symbol", "K O,2020-01-03,10,11,9,10,100,9", "K O"),
    ("odd_symbol", "\N{CYRILLIC CAPITAL LETTER KA}O,2020-01-03,10,11,9,10,100,9", "\N{CYRILLIC CAPITAL LETTER KA}O"),
    ("odd_symbol", ",2020-01-03,10,11,9,10,100,9", ""),
    ("unparseable_date", "KO,03/01/2020,10,11,9,10,100,9", "03/01/2020"),
    ("unparseable_date", "KO,2020-02-30,10,11,9,10,100,9", "2020-02-30"),
    ("intraday_bar", "KO,2020-01-03 09:30:00,10,11,9,10,100,9", "2020-01-03 09:30:00"),
    ("future_date", "KO,2024-01-03,10,11,9,10,100,9", "2024-01-03"),
    ("unknown_session", "KO,2020-01-04,10,11,9,10,100,9", "2020-01-04"),
    ("unknown_session", "KO,2020-01-01,10,11,9,10,100,9", "2020-01-01"),
    ("missing_close", "KO,2020-01-03,10,11,9,,100,9", ""),
    ("unparseable_number", 'KO,2020-01-03,10,11,9,"1,000",100,9', "close=1,000"),
    ("unparseable_number", "KO,2020-01-03,10,11,9,10,100,n/a", "adj_close=n/a"),
    ("missing_adjusted_close", "KO,2020-01-03,10,11,9,10,100,", ""),
    ("non_finite_number", "KO,2020-01-03,10,11,9,NaN,100,9", "close=NaN"),
    ("non_finite_number", "KO,2020-01-03,inf,11,9,10,100,9", "open=inf"),
    ("non_positive_price", "KO,2020-01-03,10,11,9,0,100,9", "close=0"),
    ("non_positive_price", "KO,2020-01-03,10,11,9,10,100,-9", "adj_close=-9"),
    ("negative_volume", "KO,2020-01-03,10,11,9,10,-1,9", "-1"),
    ("high_below_low", "KO,2020-01-03,10,9,11,10,100,9", "high=9 low=11"),
    ("close_outside_range", "KO,2020-01-03,10,11,9,12,100,9", "low=9 close=12 high=11"),
    ("close_outside_range", "KO,2020-01-03,10,,9,8,100,9", None),
    ("open_outside_range", "KO,2020-01-03,12,11,9,10,100,9", "low=9 open=12 high=11"),
    ("implausible_number", "KO,2020-01-03,10,1e308,9,10,100,9", "high=1e308"),
    ("implausible_number", "KO,2020-01-03,,,,1e308,100,9", "close=1e308"),
    ("implausible_number", "KO,2020-01-03,,,,10,100,1e-308", "adj_close=1e-308"),
    ("implausible_number", "KO,2020-01-03,1e5,,,10,100,9", "open=1e5"),
    ("implausible_number", "KO,2020-01-03,10,11,9,10,1e30,9", "volume=1e30"),
    ("implausible_move", "KO,2020-01-03,1e8,1.1e8,9e7,1e8,100,1e8", "1e8"),
    ("unexplained_move", "KO,2020-01-03,10,20,9,20,0,20", "20"),
    ("unexplained_move", "KO,2020-01-03,,,,3,,3", "3"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("rule", "row", "value"), BROKEN_ROWS)
def test_row_that_breaks_a_rule_is_quarantined_alone(rule, row, value):
    content = "\n".join([HEADER, GOOD[0], row, GOOD[1]]).encode(errors="surrogateescape")
    tables = market_tables(LandedFile("p.csv", content))
    (refused,) = tables.quarantine.rows(named=True)
    assert (refused["rule"], refused["file"], refused["line"]) == (rule, "p.csv", 3)
    assert value is None or refused["value"] == value
    assert len(refused["reason"].split()) >= 4
    assert tables.clean_bars["close"].to_list() == [10.0, 10.5]


def test_every_rule_is_tested():
    tried = {rule for rule, _, _ in BROKEN_ROWS} | {SESSION_NOT_ENDED}
    assert {rule.name for rule in ROW_RULES} <= tried


def test_row_that_breaks_several_rules_names_the_first():
    tables = market_tables(csv(GOOD[0], "K$O,2020-01-04,10,9,11,-1,100,9"))
    assert rules(tables) == [(3, "odd_symbol")]


def test_blanks_and_small_letters_are_accepted():
    tables = market_tables(csv(" ko ,20200102, 10,11,9,10 ,100,9"))
    assert tables.quarantine.is_empty()
    assert tables.clean_bars.row(0)[1:3] == ("KO", dt.date(2020, 1, 2))


def test_symbols_of_classes_indices_and_currencies_are_accepted():
    rows = [f"{symbol},2020-01-02,10,11,9,10,100,9" for symbol in ("BRK-B", "BF.B", "^GSPC", "EURUSD=X", "0700.HK")]
    assert market_tables(csv(*rows)).quarantine.is_empty()


def test_close_outside_range_by_rounding_is_accepted():
    tables = market_tables(csv("KO,2020-01-02,10,10.0000001,10.0000002,10.0000003,100,9"))
    assert tables.quarantine.is_empty()


def test_symbol_without_any_adjusted_close_in_a_file_has_its_closes():
    rows = ["KO,2020-01-02,10,11,9,10,100,", "PEP,2020-01-02,20,21,19,20,100,9"]
    tables = market_tables(csv(*rows), csv("KO,2020-01-03,10,11,9,10,100,8", name="b.csv"))
    assert tables.clean_bars["adj_close"].to_list() == [10.0, 8.0, 9.0]


def wide(*adjusted):
    rows = "".join(f"2020-01-0{day},{each},40,5\n" for day, each in zip((2, 3, 6), adjusted, strict=True))
    return f"Price,Adj Close,Close,Close\nTicker,KO,KO,PEP\nDate,,,\n{rows}".encode()


def parquet(*adjusted):
    days = ["2020-01-02", "2020-01-03", "2020-01-06"]
    prices = [float(each) if each else None for each in adjusted]
    buffer = io.BytesIO()
    pl.DataFrame({"date": days, "symbol": "KO", "close": 40.0, "adj_close": prices}).write_parquet(buffer)
    return buffer.getvalue()


def long(*adjusted, header="date,tic,close,adjcp"):
    rows = (f"2020-01-0{day},KO,40,{each}" for day, each in zip((2, 3, 6), adjusted, strict=True))
    return "\n".join([header, *rows]).encode()


@pytest.mark.parametrize(("write", "name"), [(long, "p.csv"), (wide, "p.csv"), (parquet, "p.parquet")])
@pytest.mark.parametrize("blank", range(3))
def test_blank_adjusted_close_beside_others_is_refused(write, name, blank):
    adjusted = ["10" if row != blank else "" for row in range(3)]
    tables = market_tables(LandedFile(name, write(*adjusted)))
    assert tables.clean_bars.filter(symbol="KO")["adj_close"].to_list() == [10.0, 10.0]
    assert tables.quarantine["rule"].to_list() == ["missing_adjusted_close"]


def test_repeated_bar_is_taken_from_the_first_delivery():
    tables = market_tables(csv(*GOOD, name="a.csv"), csv(*GOOD, name="b.csv"))
    assert tables.clean_bars["file"].unique().to_list() == ["a.csv"]
    assert tables.quarantine.select("file", "line", "rule").rows() == [
        ("b.csv", 2, "duplicate"),
        ("b.csv", 3, "duplicate"),
    ]
    assert tables.quarantine["reason"].n_unique() == 1


def test_changed_bar_is_taken_from_the_latest_delivery():
    corrected = GOOD[0].replace("10,100,9", "10.25,100,9.25")
    tables = market_tables(csv(*GOOD, name="b.csv"), csv(corrected, name="a.csv"))
    assert tables.clean_bars.select("file", "close").rows() == [("a.csv", 10.25), ("b.csv", 10.5)]
    assert tables.quarantine.select("file", "line", "rule").rows() == [("b.csv", 2, "duplicate")]


def test_bar_is_taken_from_first_delivery_equal_to_the_latest():
    other = GOOD[0].replace("10,100,9", "10.25,100,9.25")
    tables = market_tables(csv(GOOD[0], name="a.csv"), csv(other, name="b.csv"), csv(GOOD[0], name="c.csv"))
    assert tables.clean_bars["file"].to_list() == ["a.csv"]
    assert tables.quarantine["file"].to_list() == ["b.csv", "c.csv"]


@pytest.mark.parametrize(
    "other",
    [
        "10,11,9,9.5,100,9",
        "10,11,9,10,100,8",
        "9.5,11,9,10,100,9",
        "10,12,9,10,5,9",
        ",,,10,100,9",
        "1050,1100,900,1050,1,9",
    ],
)
def test_two_different_bars_of_a_file_are_both_refused(other):
    again = "KO,2020-01-02,10,11,9,10,100,9"
    tables = market_tables(csv(*GOOD, f"KO,2020-01-02,{other}", again))
    assert tables.clean_bars["line"].to_list() == [3]
    assert rules(tables) == [(line, "several_bars") for line in (2, 4, 5)]
    assert all("lines 2 and 4 " in reason for reason in tables.quarantine["reason"])


@pytest.mark.parametrize("other", ["10,11,9,10,200,9", "10,11,9,10.0000001,200,9", "10.0,11,9,10,,9"])
def test_later_of_two_lines_that_differ_in_volume_alone_counts(other):
    tables = market_tables(csv(GOOD[0], f"KO,2020-01-02,{other}"))
    assert tables.clean_bars["line"].to_list() == [3]
    assert rules(tables) == [(2, "duplicate")]


def test_two_different_bars_of_a_file_do_not_replace_an_earlier_delivery():
    two = [GOOD[0].replace("10,100,9", f"{close},100,9") for close in ("9.5", "10.5")]
    tables = market_tables(csv(*GOOD, name="a.csv"), csv(*two, name="b.csv"))
    assert tables.clean_bars["file"].to_list() == ["a.csv", "a.csv"]
    repaired = market_tables(csv(*two, name="a.csv"), csv(*GOOD, name="b.csv"))
    assert repaired.clean_bars["file"].to_list() == ["b.csv", "b.csv"]


@pytest.mark.parametrize(
    ("last", "rule", "lines"),
    [
        ("2020-01-03,,", ["missing_close"], [2, 3]),
        (",,", ["unparseable_date"], [2, 3]),
        ("2020-01-03,11,6", ["duplicate"], [2, 4]),
        ("2020-01-03,11.00,5", ["duplicate"], [2, 3]),
        ("2020-01-03,12,5", ["several_bars"] * 2, [2]),
    ],
)
def test_odd_last_row_of_a_symbols_file_is_its_own_affair(last, rule, lines):
    text = f"date,close,volume\n2020-01-02,10,5\n2020-01-03,11,5\n{last}\n"
    tables = market_tables(LandedFile("AAPL.csv", text.encode()))
    assert tables.quarantine["rule"].to_list() == rule
    assert tables.clean_bars.select("symbol", "line").rows() == [("AAPL", line) for line in lines]


def test_bad_row_does_not_replace_an_earlier_good_one():
    bad = "KO,2020-01-06,10,11,9,-1,100,9"
    tables = market_tables(csv(*GOOD, name="a.csv"), csv(bad, name="b.csv"))
    assert tables.clean_bars["close"].to_list() == [10.0, 10.5]
    assert rules(tables) == [(2, "non_positive_price")]


def test_unexplained_move_does_not_replace_an_earlier_delivery():
    typo = "KO,2020-01-06,,,,105,,105"
    tables = market_tables(csv(*GOOD, name="a.csv"), csv(typo, name="b.csv"))
    assert tables.clean_bars["close"].to_list() == [10.0, 10.5]
    assert tables.quarantine.select("file", "rule").rows() == [("b.csv", "unexplained_move")]


def closes(*prices, volume="", first="2020-12-28", adjusted=None):
    days = ["2020-12-28", "2020-12-29", "2020-12-30", "2020-12-31", "2021-01-04", "2021-01-05", "2021-01-06"]
    days = days[days.index(first) :]
    adjusted = adjusted or prices
    rows = zip(days, prices, adjusted, strict=False)
    return csv(*(f"KO,{day},,,,{price},{volume},{adj}" for day, price, adj in rows))


def test_spike_costs_one_bar():
    assert rules(market_tables(closes(10, 10, 100, 10, 10))) == [(4, "unexplained_move")]


def test_new_price_level_is_refused_once():
    assert rules(market_tables(closes(10, 10, 3, 3, 3.1))) == [(4, "unexplained_move")]


def test_two_different_jumps_in_a_row_are_both_refused():
    assert rules(market_tables(closes(10, 10, 100, 1, 10, 10))) == [(4, "unexplained_move"), (5, "unexplained_move")]


def test_move_across_the_year_end_is_refused():
    tables = market_tables(closes(10, 10, 100, 100, first="2020-12-30"))
    assert tables.quarantine.select("year", "date").rows() == [(2021, "2021-01-04")]


def test_move_with_volume_is_accepted():
    assert market_tables(closes(10, 10, 3, 3, volume=500)).quarantine.is_empty()


def test_move_of_the_raw_close_by_a_split_is_accepted():
    tables = market_tables(closes(40, 40, 10, 10, adjusted=(10, 10, 10, 10)))
    assert tables.quarantine.is_empty()


@pytest.mark.parametrize("line", range(2, 9))
@pytest.mark.parametrize("factor", [1e7, *(pytest.param(factor, marks=pytest.mark.nightly) for factor in (1e-7, 1e4))])
def test_one_absurd_price_anywhere_is_refused_alone(line, factor):
    prices = [10 * factor if row == line else 10 for row in range(2, 9)]
    tables = market_tables(closes(*prices, volume=100))
    assert rules(tables) == [(line, "implausible_move")]
    assert tables.returns["close_return"].drop_nulls().to_list() == [0.0] * 5


def test_absurd_prices_in_a_row_are_all_refused():
    tables = market_tables(closes(10, 10, 1e8, 1e8, 10, 10, volume=100))
    assert rules(tables) == [(4, "implausible_move"), (5, "implausible_move")]


def test_absurd_price_does_not_replace_an_earlier_delivery():
    tables = market_tables(csv(*GOOD, name="a.csv"), csv("KO,2020-01-06,,,,1.05e8,100,1e8", name="b.csv"))
    assert tables.clean_bars["close"].to_list() == [10.0, 10.5]


def test_moves_are_not_measured_between_symbols():
    rows = ["A,2020-01-02,,,,1,,1", "B,2020-01-03,,,,100,,100"]
    assert market_tables(csv(*rows)).quarantine.is_empty()


def test_unreadable_file_is_one_quarantined_row_with_line_zero():
    tables = market_tables(csv(*GOOD), LandedFile("empty.csv", b""))
    assert tables.quarantine.select("file", "line", "rule", "symbol").rows() == [("empty.csv", 0, "empty_file", None)]
    assert len(tables.clean_bars) == 2


def test_repaired_file_leaves_quarantine():
    tables = market_tables(LandedFile("p.csv", b""), csv(*GOOD, name="p.csv"))
    assert tables.quarantine.is_empty()


def test_files_without_good_rows_exclude_repeated_files():
    bad = csv("KO,2020-01-04,10,11,9,10,100,9", name="bad.csv")
    files = [csv(*GOOD, name="a.csv"), csv(*GOOD, name="again.csv"), bad, LandedFile("empty.csv", b"")]
    tables = market_tables(*files)
    named = files_without_good_rows(tables.bars, tables.quarantine)
    assert named.rows() == [("landing", "bad.csv"), ("landing", "empty.csv")]


def test_symbol_with_nan_closes_only_leaves_the_market():
    bars = synthetic_bars(n_sessions=20)
    nothing = bars.with_columns(close=pl.when(pl.col("symbol") == "BBB").then(float("nan")).otherwise("close"))
    tables = market_tables(csv_file(nothing))
    assert tables.clean_bars["symbol"].unique().sort().to_list() == ["AAA", "CCC"]
    assert tables.quarantine["rule"].to_list() == ["non_finite_number"] * 20


def test_empty_market_gives_empty_tables():
    tables = market_tables(LandedFile("empty.csv", b""))
    assert tables.clean_bars.is_empty()
    assert tables.clean_bars.schema == CLEAN_BARS
    assert tables.quarantine.schema == QUARANTINE
    assert tables.returns.is_empty()
    assert tables.features.is_empty()


cell = st.sampled_from(["KO", "K$", "2020-01-02", "2020-01-03", "x", "", "-1", "0", "10", "11", "1e9", "NaN", '"', ","])


@pytest.mark.slow
@given(rows=st.lists(st.lists(cell, min_size=1, max_size=9), min_size=1, max_size=12))
def test_every_row_is_either_clean_or_quarantined(rows):
    text = "\n".join([HEADER, *(",".join(row) for row in rows)])
    tables = market_tables(LandedFile("p.csv", text.encode()))
    lines = [*tables.clean_bars["line"], *tables.quarantine.filter(pl.col("line") > 0)["line"]]
    delivered = [number for number, row in enumerate(text.split("\n"), 1) if number > 1 and row.strip()]
    assert sorted(lines) == delivered


@pytest.mark.slow
@settings(max_examples=settings.default.max_examples // 2)
@given(cut=st.integers(1, 59), factor=st.floats(0.01, 100.0), seed=st.integers(0, 5))
def test_later_sessions_do_not_change_earlier_clean_bars(cut, factor, seed):
    bars = synthetic_bars(n_sessions=60, n_symbols=2, seed=seed, opens=False, volume=False)
    wild = bars.with_columns(pl.col("close", "adj_close") * pl.Series(_spikes(len(bars))))
    last = wild["date"].unique().sort()[cut - 1]
    later = pl.col("date") > last
    changed = wild.with_columns(
        pl.when(later).then(pl.col(name) * factor).otherwise(name) for name in ("close", "adj_close")
    )
    before, after = market_tables(csv_file(wild)), market_tables(csv_file(changed))
    past = pl.col("session") <= dt.date.fromisoformat(last)
    assert_frame_equal(before.clean_bars.filter(past), after.clean_bars.filter(past), check_exact=True)
    assert before.quarantine.filter(pl.col("date") <= last).equals(after.quarantine.filter(pl.col("date") <= last))


def _spikes(length):
    return [10.0 if k % 17 in {5, 6} else 1.0 for k in range(length)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("calendar", "session", "now", "rule"),
    [
        ("XNYS", "2024-01-03", "2024-01-03T01:00Z", "future_date"),  # still 2 January in New York
        ("XNYS", "2024-01-03", "2024-01-03T13:00Z", "session_not_ended"),  # today, before the opening
        ("XNYS", "2024-01-03", "2024-01-03T20:59Z", "session_not_ended"),
        ("XNYS", "2024-01-03", "2024-01-03T21:00Z", None),
        ("XNYS", "2024-01-06", "2024-01-06T15:00Z", "unknown_session"),  # today, a Saturday
        ("24/7", "2024-01-06", "2024-01-05T23:59Z", "future_date"),
        ("24/7", "2024-01-06", "2024-01-06T23:59Z", "session_not_ended"),
        ("24/7", "2024-01-06", "2024-01-07T00:00Z", None),
        ("24/5", "2024-01-05", "2024-01-05T12:00Z", "session_not_ended"),
        ("XTKS", "2024-01-05", "2024-01-04T14:59Z", "future_date"),
        ("XTKS", "2024-01-05", "2024-01-04T15:00Z", "session_not_ended"),  # today in Tokyo
        ("XTKS", "2024-01-05", "2024-01-05T05:59Z", "session_not_ended"),
        ("XTKS", "2024-01-05", "2024-01-05T06:30Z", None),
        ("CMES", "2024-01-05", "2024-01-04T23:30Z", "session_not_ended"),  # opened on the evening before
    ],
)
def test_session_is_clean_once_it_has_ended(calendar, session, now, rule):
    file = csv(f"KO,{session},10,11,9,10,100,9", name="a.csv")
    tables = market_tables(file, now=dt.datetime.fromisoformat(now), calendar=calendar)
    refused = None if rule is None else (rule, session)
    assert tables.quarantine.select("rule", "value").rows() == ([refused] if refused else [])
    assert tables.clean_bars["session"].cast(str).to_list() == ([] if refused else [session])
    is_bad = rule in {"future_date", "unknown_session"}
    assert files_without_good_rows(tables.bars, tables.quarantine)["file"].to_list() == (["a.csv"] if is_bad else [])
