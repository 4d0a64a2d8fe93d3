import datetime as dt
import io

import polars as pl
import pytest
from rich.console import Console

from nvtrader_pipelines.market.cleaning import clean
from nvtrader_pipelines.runs.ingestion import ingest_market
from nvtrader_pipelines.runs.market_summary import MAX_REFUSED_SHARE, read_basis_changes, summarize_market
from nvtrader_pipelines.service.cli.pages.market_page import MAX_VALUE, MAX_WARNINGS, draw_coverage, print_market
from nvtrader_pipelines.service.documents.market_facts import market_document
from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.panels import read_calendars
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.tables import BARS, CLEAN_BARS, DELIVERIES, MARKET_PANEL, QUARANTINE
from tests.markets import INGESTED_AT, csv_file, synthetic_bars
from tests.runs.small_runs import market_home

pytestmark = pytest.mark.slow

FIRST_BAD = 17  # rows of BBB, a row in 20 and one more


def summarize_landed(store, now=INGESTED_AT):
    """Ingest and clean the landing zone, and summarize it."""
    ingest_market(store.tables, range(1900, 2025), INGESTED_AT)
    calendars = read_calendars(store.tables)
    kept, refused = clean(store.tables.read(BARS), store.tables.read(DELIVERIES), now, calendars)
    store.tables.replace(CLEAN_BARS, kept, {})
    store.tables.replace(QUARANTINE, refused, {})
    return summarize_market(store)


@pytest.fixture(scope="module")
def summary(tmp_path_factory):
    """Summary of a file with bad rows of one symbol, one that repeats a part, and one that is refused."""
    home = Home(tmp_path_factory.mktemp("summary") / "home")
    home.landing.mkdir(parents=True)
    home.market_file.write_text("sources: [{kind: landing}]\n")
    bars = synthetic_bars(n_sessions=320, n_symbols=3)
    text = csv_file(bars).content.decode().split("\n")
    own = [i for i, line in enumerate(text) if line.startswith("BBB,")]
    for i in own[:FIRST_BAD]:
        text[i] = text[i].replace("BBB,20", "BBB,18")
    text[next(i for i, line in enumerate(text) if line.startswith("AAA,"))] = "AAA,2015-01-02,broken"
    (home.landing / "a.csv").write_text("\n".join(text))
    (home.landing / "b.csv").write_bytes(csv_file(bars.filter(pl.col("symbol") == "CCC").head(10)).content)
    (home.landing / "c.csv").write_text("nothing\n")
    return summarize_landed(Store(home))


def test_rows_of_each_file_are_kept_refused_or_repeated(summary):
    files = {row["file"]: row for row in summary.files.rows(named=True)}
    counts = ["n_symbols", "n_rows", "n_kept", "n_refused", "n_repeated"]
    assert [files["a.csv"][name] for name in counts] == [3, 960, 960 - FIRST_BAD - 1, FIRST_BAD + 1, 0]
    assert [files["b.csv"][name] for name in counts] == [1, 10, 0, 0, 10]
    assert files["c.csv"]["reason"].startswith("the header 'nothing'")


def test_symbol_above_the_threshold_is_a_warning_by_name(summary):
    assert FIRST_BAD / 320 > MAX_REFUSED_SHARE
    assert [warning.split()[0] for warning in summary.warnings] == ["landing", "c.csv", "BBB:"]
    assert f"{FIRST_BAD} of 320 rows were refused (5%, more than 5%)" in summary.warnings[2]
    assert "a.csv, line" in summary.warnings[2]


def test_two_symbols_under_one_name_are_a_warning(home, store):
    home.market_file.write_text("sources: [{kind: landing}]\n")
    (home.landing / "ko.csv").write_text("date,close\n2020-01-02,1\n2020-01-03,1\n")
    (home.landing / "ko_2.csv").write_text("date,close\n2020-01-02,50\n2020-01-03,51\n")
    (warning,) = [each for each in summarize_landed(store).warnings if each.startswith("KO:")]
    assert "ko_2.csv replaced 2 rows of ko.csv" in warning


def test_guessed_symbols_and_unused_columns_are_notes(home, store):
    home.market_file.write_text("sources: [{kind: landing}]\n")
    (home.landing / "KO.csv").write_text("date,close,Dividends,\n2020-01-02,1,0,5\n")
    (home.landing / "PEP.csv").write_text("date,close,Dividends,\n2020-01-02,1,0,5\n")
    (home.landing / "all.csv").write_text("date,close,symbol\n2020-01-02,1,IBM\n")
    summary = summarize_landed(store)
    unused = ["Dividends", ""]
    expected = [("KO.csv", "KO", unused), ("PEP.csv", "PEP", unused), ("all.csv", None, [])]
    assert summary.files.select("file", "guessed_symbol", "unused_columns").rows() == expected
    guessed, columns = market_document(summary, (), has_new_bars=True).notes
    assert guessed.startswith("2 symbols (KO, PEP): guessed from the name of the file, such as KO.csv")
    assert columns == "columns that are not read: Dividends, (unnamed) (in KO.csv and 1 more)"
    console = Console(record=True, width=200, file=io.StringIO())
    print_market(summary, console)
    assert console.export_text().count("note: ") == 2


def test_equal_warnings_of_symbols_are_one(home, store):
    home.market_file.write_text("sources: [{kind: landing}]\n")
    bars = "".join(f"S{k},2020-01-02 09:30,1\n" for k in range(7))
    (home.landing / "a.csv").write_text(f"symbol,date,close\n{bars}")
    (warning,) = [each for each in summarize_landed(store).warnings if "intraday bars are not supported yet" in each]
    assert warning.startswith("7 symbols (S0, S1, S2, S3, S4 and 2 more): 1 of 1 rows were refused")
    assert "most of them by intraday_bar, first a.csv, line 2" in warning


def test_move_with_volume_like_a_split_is_a_warning_and_stays(home, store):
    home.market_file.write_text("sources: [{kind: landing}]\n")
    closes = {"SPLIT": (100, 24, 24), "TWICE": (10, 17, 28), "SOLD": (10, 4.1, 4.1)}
    days = "236"
    rows = [
        f"{name},2020-01-0{day},{close},9\n" for name in closes for day, close in zip(days, closes[name], strict=True)
    ]
    (home.landing / "a.csv").write_text(f"symbol,date,close,volume\n{''.join(rows)}")
    summary = summarize_landed(store)
    split, twice = [each for each in summary.warnings if "if that is a split" in each]
    assert split.startswith("SPLIT: the adjusted close moved by a factor of 0.24 on 2020-01-03, with volume")
    assert twice.startswith(
        "TWICE: the adjusted close moved by a factor of 1.7 on 2020-01-03 (the first of 2 such moves)"
    )
    assert summary.symbols["n_kept"].to_list() == [3, 3, 3]


@pytest.mark.parametrize("calendar", ["24/7", "24/5"])
def test_move_like_a_split_of_coins_or_currencies_is_no_warning(home, store, calendar):
    home.market_file.write_text(f"sources: [{{kind: landing, calendar: {calendar}}}]\n")
    (home.landing / "a.csv").write_text("symbol,date,close,volume\nCOIN,2020-01-02,100,9\nCOIN,2020-01-03,24,9\n")
    assert not [each for each in summarize_landed(store).warnings if "split" in each]


def deliver(home, name, symbol, closes, first=dt.date(2020, 1, 6)):
    """Land a file of a symbol's closes on successive days."""
    rows = [f"{symbol},{first + dt.timedelta(days=day)},{close}" for day, close in enumerate(closes)]
    (home.landing / name).write_text("\n".join(["symbol,date,close", *rows]))


def deliver_again(home, store, closes, *later, first):
    """Land the closes of a symbol for each later delivery, and then these; return the warnings and the changes."""
    home.market_file.write_text("sources: [{kind: landing, calendar: 24/7}]\n")
    for n in range(len(later)):
        deliver(home, f"{n}-a.csv", f"COIN{n}", closes)
    summarize_landed(store)
    for n, again in enumerate(later):
        deliver(home, f"{n}-b.csv", f"COIN{n}", again, first=first)
    return summarize_landed(store).warnings, read_basis_changes(store.tables)


def test_delivery_on_another_basis_than_older_bars_is_a_warning(home, store):
    later = (
        [26.0, 26.5, 27.0],
        [26.0, 26.6, 27.0],  # not by one factor
        [52.0, 26.5, 27.0],  # the first shared bar agrees
        [52.3, 53.308, 54.0],  # by less than 1 %
    )
    warnings, changes = deliver_again(home, store, [50.0, 51.0, 52.0, 53.0], *later, first=dt.date(2020, 1, 8))
    assert changes.select("symbol", "file", "by", "factor", "first", "n_older").rows() == [
        ("COIN0", "0-a.csv", "0-b.csv", 0.5, dt.date(2020, 1, 8), 2)
    ]
    assert len([each for each in warnings if "the old basis" in each]) == 1


def test_one_corrected_bar_is_no_change_of_basis(home, store):
    _, changes = deliver_again(home, store, [50.0, 51.0, 52.0], [55.0, 56.0], first=dt.date(2020, 1, 8))
    assert changes.is_empty()


def test_whole_history_on_another_basis_is_no_warning(home, store):
    later = [25.0, 25.5, 26.0, 26.5, 27.0]
    _, changes = deliver_again(home, store, [50.0, 51.0, 52.0, 53.0], later, first=dt.date(2020, 1, 6))
    assert changes.is_empty()


def test_usual_ratio_between_two_files_is_a_warning(home, store):
    home.market_file.write_text("sources: [{kind: landing}]\n")
    for symbol, first_close in {"A": 26.3, "B": 35.0, "C": 79.0, "D": 42.0}.items():
        deliver(home, f"{symbol}-a.csv", symbol, [50.0, 51.0, 52.0])
        deliver(home, f"{symbol}-b.csv", symbol, [first_close, first_close], first=dt.date(2020, 1, 9))
    split = sorted(each for each in summarize_landed(store).warnings if "if that is a split" in each)
    assert len(split) == 3
    for symbol, warning in zip("ABC", split, strict=True):
        assert f"on 2020-01-09, from {symbol}-a.csv to {symbol}-b.csv" in warning


def test_page_counts_the_warnings_and_cuts_the_values_it_does_not_show(home, store):
    home.market_file.write_text("sources: [{kind: landing}]\n")
    (home.landing / "a.csv").write_text(f"symbol,date,close\nA,{'x' * 5000},1\n")
    console = Console(record=True, width=200, file=io.StringIO())
    print_market(summarize_landed(store), console, ["again"] * (MAX_WARNINGS + 4))
    shown = console.export_text()
    assert shown.count("warning: ") == MAX_WARNINGS
    assert "5 more warnings" in shown
    assert "x" * (MAX_VALUE + 1) not in shown


def test_symbols_have_their_first_session_gaps_and_coverage(summary):
    symbols = {row["symbol"]: row for row in summary.symbols.rows(named=True)}
    assert next(iter(symbols)) == "BBB"
    assert symbols["CCC"]["coverage"] == [1.0, 1.0]
    assert symbols["CCC"]["n_missing"] == symbols["BBB"]["n_missing"] == 0
    assert symbols["BBB"]["coverage"][0] == pytest.approx((252 - FIRST_BAD) / 252)


def test_reasons_are_counted_with_their_first_row(summary):
    rules = summary.reasons.select("rule", "n_rows", "file").rows()
    assert rules[0] == ("unknown_session", FIRST_BAD, "a.csv")
    assert ("duplicate", 10, "b.csv") in rules


def test_session_that_has_not_ended_is_no_warning(home, store):
    home.market_file.write_text("sources: [{kind: landing}]\n")
    days = [INGESTED_AT.date() - dt.timedelta(days=age) for age in (5, 4)]
    bars = [f"KO,{day},10" for day in days] + [f"{name},{INGESTED_AT.date()},10" for name in ("KO", "PEP")]
    (home.landing / "a.csv").write_text("\n".join(["symbol,date,close", *bars]))
    summary = summarize_landed(store, INGESTED_AT.replace(hour=15))
    assert summary.reasons["rule"].to_list() == ["session_not_ended"]
    assert [warning.split()[0] for warning in summary.warnings] == ["landing"]  # one bar a symbol makes no panel
    assert summarize_landed(store).reasons.is_empty()


@pytest.mark.slow
def test_usable_sessions_and_missing_sectors_of_a_panel_are_notes(tmp_path):
    store = market_home(tmp_path / "home")
    (store.home.compliance).mkdir(parents=True, exist_ok=True)
    (store.home.compliance / "sectors.csv").write_text("symbol,sector\nBBB,Energy\n")
    (row,) = store.tables.read(MARKET_PANEL, columns=["first_session", "n_sessions", "symbols"]).rows(named=True)
    usable, sectors = summarize_market(store).notes[-2:]
    assert str(row["first_session"]) in usable
    assert f" {row['n_sessions']:,} to " in usable
    assert sectors.endswith("AAA,SECTOR")
    assert "BBB" not in sectors
    (store.home.compliance / "sectors.csv").write_text("BBB,Energy\n")
    assert "the columns must be symbol,sector" in summarize_market(store).notes[-1]


def test_summary_of_an_empty_home_has_no_rows(store):
    summary = summarize_market(store)
    assert (len(summary.files), len(summary.symbols), summary.first_year, summary.warnings) == (0, 0, None, ())


def test_coverage_is_drawn_in_eighths_with_a_dot_for_none():
    assert draw_coverage([0.0, 0.001, 0.5, 0.999, 1.0]) == "\u00b7\u2581\u2584\u2587\u2588"
    assert draw_coverage(None) == ""
