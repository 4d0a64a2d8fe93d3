import datetime as dt
import threading

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from nvtrader_pipelines.market.cleaning import clean
from nvtrader_pipelines.market.returns import bar_returns
from nvtrader_pipelines.runs.ingestion import ingest_market
from nvtrader_pipelines.storage.iceberg.warehouse import Warehouse
from nvtrader_pipelines.storage.panels import read_calendars
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.tables import BARS, DELIVERIES
from tests.markets import INGESTED_AT, csv_file, synthetic_bars

pytestmark = pytest.mark.slow
YEARS = [2015, 2016]
LATER = INGESTED_AT + dt.timedelta(hours=1)
KEY = ["source", "file", "line"]


@pytest.fixture
def land(home):
    home.market_file.write_text("sources: [{kind: landing}]\n")

    def write(name, bars):
        (home.landing / name).write_bytes(bars if isinstance(bars, bytes) else csv_file(bars).content)

    return write


def bars_of(tables):
    return tables.read(BARS).sort(KEY)


def test_ingest_stores_every_delivered_row_in_bronze(tables, land):
    bars = synthetic_bars()
    land("a.csv", bars)
    report = ingest_market(tables, YEARS, INGESTED_AT)
    assert (report.n_rows, report.files_seen, report.files_read, report.refused) == (len(bars), 1, 1, {})
    assert len(tables.read(BARS)) == len(bars)


def test_ingest_of_unchanged_files_reads_and_commits_nothing(tables, land):
    land("a.csv", synthetic_bars())
    ingest_market(tables, YEARS, INGESTED_AT)
    snapshots = tables.snapshot_id(BARS), tables.snapshot_id(DELIVERIES)
    report = ingest_market(tables, YEARS, LATER)
    assert (report.files_read, report.n_rows) == (0, 960)
    assert (tables.snapshot_id(BARS), tables.snapshot_id(DELIVERIES)) == snapshots


def test_ingest_by_year_equals_ingest_of_all_years(tables, land):
    land("a.csv", synthetic_bars())
    for year in YEARS:
        assert ingest_market(tables, [year], INGESTED_AT).files_read == 1
    apart = bars_of(tables)
    assert ingest_market(tables, YEARS, LATER).files_read == 0
    tables.replace(DELIVERIES, tables.read(DELIVERIES).head(0), {})
    ingest_market(tables, YEARS, INGESTED_AT)
    assert_frame_equal(bars_of(tables), apart)


def test_delivery_names_only_the_years_of_its_rows(tables, land):
    land("a.csv", synthetic_bars())
    land("empty.csv", b"")
    every_year = range(1900, INGESTED_AT.year + 1)
    ingest_market(tables, every_year, INGESTED_AT)
    years = dict(tables.read(DELIVERIES).select("file", "years").iter_rows())
    assert years == {"a.csv": YEARS, "empty.csv": []}
    assert ingest_market(tables, every_year, LATER).files_read == 0


def test_years_recorded_wrongly_by_an_earlier_version_are_corrected(tables, land):
    land("a.csv", synthetic_bars())
    ingest_market(tables, YEARS, INGESTED_AT)
    wrong = tables.read(DELIVERIES).with_columns(years=pl.lit([1900, 2015, 2016, 2024], pl.List(pl.Int32)))
    tables.replace(DELIVERIES, wrong, {})
    assert ingest_market(tables, YEARS, LATER).files_read == 0
    assert tables.read(DELIVERIES)["years"].to_list() == [YEARS]


def test_shortened_file_leaves_no_row_of_its_earlier_content(tables, land):
    bars = synthetic_bars()
    land("a.csv", bars)
    ingest_market(tables, YEARS, INGESTED_AT)
    land("a.csv", bars.filter(pl.col("date") < "2016"))
    for years in ([2015], YEARS):
        ingest_market(tables, years, LATER)
    assert bars_of(tables)["year"].unique().to_list() == [2015]


def test_corrected_file_replaces_only_its_rows_in_one_commit(tables, land):
    first, second = synthetic_bars(seed=1), synthetic_bars(seed=2)
    land("a.csv", first)
    land("b.csv", second)
    ingest_market(tables, YEARS, INGESTED_AT)
    before = bars_of(tables).filter(pl.col("file") == "b.csv")
    old = tables.load(BARS)
    land("a.csv", first.head(10))
    assert ingest_market(tables, YEARS, LATER).files_read == 1
    assert tables.load(BARS).metadata.metadata_log[-1].metadata_file == old.metadata_location
    after = bars_of(tables)
    assert after.filter(pl.col("file") == "a.csv")["ingested_at"].to_list() == [LATER] * 10
    assert_frame_equal(after.filter(pl.col("file") == "b.csv"), before)


def test_reverted_correction_is_reverted_in_bronze(tables, land):
    first, second = synthetic_bars(seed=1), synthetic_bars(seed=2)
    for bars in (first, second, first):
        land("a.csv", bars)
        ingest_market(tables, YEARS, INGESTED_AT)
        assert tables.read(BARS)["close"].sort().to_list() == bars["close"].cast(pl.String).sort().to_list()


def test_rows_of_a_removed_file_stay(tables, land, home):
    land("a.csv", synthetic_bars())
    ingest_market(tables, YEARS, INGESTED_AT)
    (home.landing / "a.csv").unlink()
    land("b.csv", synthetic_bars(seed=1))
    assert ingest_market(tables, YEARS, LATER).n_rows == 2 * 960
    assert len(list(home.deliveries.iterdir())) == 2


def test_markets_of_one_home_have_their_own_folders_and_calendars(tables, home, land):
    home.market_file.write_text("sources: [{kind: landing}, {kind: landing, name: coins, calendar: 24/7}]\n")
    (home.landing / "coins").mkdir()
    land("A.csv", b"symbol,date,close\nA,2016-01-01,1\nA,2016-01-04,1\n")
    land("coins/B.csv", b"symbol,date,close\nB,2016-01-02,1\nB,2016-01-04,1\n")
    ingest_market(tables, [2016], INGESTED_AT)
    calendars = read_calendars(tables)
    good, refused = clean(tables.read(BARS), tables.read(DELIVERIES), INGESTED_AT, calendars)
    assert refused.select("source", "date", "rule").rows() == [("landing", "2016-01-01", "unknown_session")]
    assert bar_returns(good, calendars).select("source", "span").rows() == [
        ("coins", None),
        ("coins", 2),
        ("landing", None),
    ]
    home.market_file.write_text("sources: [{kind: landing}]\n")
    assert read_calendars(tables).of("coins").name == "24/7"  # as delivered
    assert ingest_market(tables, [2016], LATER).files_read == 0
    assert sorted(tables.read(BARS)["source"]) == ["coins", "coins", "landing", "landing"]
    home.market_file.write_text("sources: [{kind: landing}, {kind: landing, name: coins, calendar: 24/5}]\n")
    assert read_calendars(tables).of("coins").name == "24/7"  # until the next ingest
    ingest_market(tables, [2016], LATER)
    assert read_calendars(tables).of("coins").name == "24/5"


def test_bars_of_a_file_that_moves_to_another_source_move_with_it(tables, home, land):
    (home.landing / "coins").mkdir()
    land("coins/B.csv", b"symbol,date,close\nB,2016-01-02,1\n")
    ingest_market(tables, [2016], INGESTED_AT)
    assert tables.read(BARS)["source"].to_list() == ["landing"]
    home.market_file.write_text("sources: [{kind: landing}, {kind: landing, name: coins, calendar: 24/7}]\n")
    ingest_market(tables, [2016], LATER)
    assert tables.read(BARS)["source"].to_list() == tables.read(DELIVERIES)["source"].to_list() == ["coins"]
    assert ingest_market(tables, [2016], LATER).files_read == 0


def test_unreadable_file_is_reported_until_delivered_again(tables, land):
    land("a.csv", synthetic_bars())
    land("b.parquet", b"PAR1 cut short")
    report = ingest_market(tables, YEARS, INGESTED_AT)
    assert list(report.refused) == ["b.parquet"]
    assert report.n_rows == 960
    land("b.parquet", b"")
    land("b.parquet", _parquet(synthetic_bars(seed=1)))
    report = ingest_market(tables, YEARS, LATER)
    assert (report.refused, report.n_rows) == ({}, 2 * 960)
    assert tables.read(DELIVERIES)["rule"].null_count() == 2


def test_crash_between_both_commits_duplicates_no_rows(tables, land, monkeypatch):
    land("a.csv", synthetic_bars())
    replace = Warehouse.replace

    def crash(self, table, *arguments):
        if table is DELIVERIES:
            raise KeyboardInterrupt
        return replace(self, table, *arguments)

    monkeypatch.setattr(Warehouse, "replace", crash)
    with pytest.raises(KeyboardInterrupt):
        ingest_market(tables, YEARS, INGESTED_AT)
    monkeypatch.undo()
    assert ingest_market(tables, YEARS, INGESTED_AT).files_read == 1
    assert len(tables.read(BARS)) == 960


def test_concurrent_ingests_lose_no_row(tables, land, home):
    land("a.csv", synthetic_bars())
    workers = [threading.Thread(target=ingest_market, args=(Store(home).tables, [y], INGESTED_AT)) for y in YEARS * 2]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert len(tables.read(BARS)) == 960
    assert ingest_market(tables, YEARS, LATER).files_read == 0


def _parquet(bars):
    import io

    buffer = io.BytesIO()
    bars.write_parquet(buffer)
    return buffer.getvalue()
