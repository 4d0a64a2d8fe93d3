import datetime as dt

import polars as pl
import pytest

from nvtrader_pipelines.experiments.spec import MarketChoice
from nvtrader_pipelines.market.features import Fundamental, Vix, compute_features
from nvtrader_pipelines.market.panel import panel_digest
from nvtrader_pipelines.market.returns import bar_returns
from nvtrader_pipelines.market.series import SeriesUnavailable
from nvtrader_pipelines.runs.ingestion import ingest_market, pin_panels
from nvtrader_pipelines.runs.market_state import deliver_prices
from nvtrader_pipelines.storage.landing_zone import landed_files
from nvtrader_pipelines.storage.panels import pinned_snapshots, read_panel
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.tables import BARS, CLEAN_BARS, DELIVERIES, FEATURES, RETURNS, SERIES
from tests.markets import INGESTED_AT, synthetic_bars
from tests.runs.test_market_summary import summarize_landed

pytestmark = pytest.mark.slow
LATER = INGESTED_AT + dt.timedelta(hours=1)
CHOICE = MarketChoice(source="landing", features=(Vix(), Fundamental()))


def deliver(store: Store, folder, name: str, rows: pl.DataFrame):
    """Deliver a file as `nvtrader ingest FILE` does, ingest it and pin the panels."""
    rows.write_csv(folder / name)
    deliver_prices(store.home, [folder / name])
    return update(store)


def update(store: Store):
    summary = summarize_landed(store, LATER)
    pin_panels(store.tables, LATER)
    return summary


@pytest.fixture
def market(store, tmp_path) -> Store:
    store.home.market_file.write_text("sources: [{kind: landing}]\n")
    deliver(store, tmp_path, "prices.csv", synthetic_bars())
    returns = bar_returns(store.tables.read(CLEAN_BARS))
    store.tables.replace(RETURNS, returns, {})
    store.tables.replace(FEATURES, compute_features(returns), {})
    pin_panels(store.tables, LATER)
    return store


def series(days, **values) -> pl.DataFrame:
    """Rows of a file: the VIX of each day, and a value of `pe` for each name on the first."""
    values_of_days = pl.int_range(20, 20 + len(days), eager=True)
    vix = pl.DataFrame({"symbol": "", "published": days, "field": "vix", "value": values_of_days})
    pe = [{"symbol": name, "published": days[0], "field": "pe", "value": value} for name, value in values.items()]
    return pl.concat([vix, pl.DataFrame(pe, schema=vix.schema)])


def test_delivered_series_become_features_of_the_panel_that_asks_for_them(market, tmp_path):
    before, bars = read_panel(market.tables, "landing"), market.tables.snapshot_id(BARS)
    with pytest.raises(SeriesUnavailable):
        market.panels.read(CHOICE)
    days = synthetic_bars(n_symbols=1)["date"]
    summary = deliver(market, tmp_path, "vix.csv", series(days, AAA=10, BBB=11, CCC=12))
    assert (market.home.landing / "series" / "vix.csv").exists()
    assert summary.files.select("file", "n_symbols", "n_rows", "n_kept").row(1) == ("series/vix.csv", 3, 323, 323)
    assert [warning for warning in summary.warnings if "series" in warning] == []
    assert market.tables.snapshot_id(BARS) == bars
    after = read_panel(market.tables, "landing")
    assert panel_digest(after) == panel_digest(before)
    panel = market.panels.read(CHOICE)
    assert panel.snapshot_ids[SERIES.name] == market.tables.snapshot_id(SERIES)
    assert panel.feature("fundamental_pe")[-1].tolist() == [10.0, 11.0, 12.0]
    assert panel.feature("vix")[-1].tolist() == [20.0 + 318] * 3  # of the day before
    pinned = pinned_snapshots(market.tables, "landing")
    deliver(market, tmp_path, "vix.csv", series(days, AAA=20, BBB=11, CCC=12))
    assert market.panels.read(CHOICE).feature("fundamental_pe")[-1].tolist() == [20.0, 11.0, 12.0]
    restored = read_panel(market.tables, "landing", snapshot_ids=pinned, features=CHOICE.features)
    assert panel_digest(restored) == panel_digest(panel)


def test_refused_series_are_recorded_until_their_file_is_corrected(store, tmp_path):
    store.home.market_file.write_text("sources: [{kind: landing}]\n")
    days = synthetic_bars(n_symbols=1)["date"]
    deliver(store, tmp_path, "a.csv", series(days, AAA=10))
    snapshot = store.tables.snapshot_id(SERIES)
    summary = deliver(store, tmp_path, "b.csv", series(days[:1], AAA=11))
    recorded = store.tables.read(DELIVERIES).select("source", "file", "rule", "ingested_at")
    assert recorded.rows() == [
        ("series", "series/a.csv", None, INGESTED_AT),
        ("series", "series/b.csv", "other_value", INGESTED_AT),
    ]
    assert [warning for warning in summary.warnings if warning.startswith("series/b.csv was refused")]
    assert store.tables.snapshot_id(SERIES) == snapshot
    assert ingest_market(store.tables, [2015], LATER).files_read == 0
    (store.home.landing / "series" / "b.csv").unlink()
    assert ingest_market(store.tables, [2015], LATER).files_seen == 1
    assert store.tables.read(DELIVERIES)["file"].to_list() == ["series/a.csv"]


def test_series_need_no_source_of_prices_that_lands(home, tmp_path):
    home.market_file.write_text("sources: [{kind: sample}]\n")
    (tmp_path / "vix.csv").write_text("symbol,published,field,value\n,2020-01-31,vix,18.8\n")
    deliver_prices(home, [tmp_path / "vix.csv"])
    assert [file.name for file in landed_files(home)] == ["series/vix.csv"]
