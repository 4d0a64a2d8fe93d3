import datetime as dt
from dataclasses import replace

import polars as pl
import pytest

from nvtrader_pipelines.experiments.spec import MarketChoice
from nvtrader_pipelines.market.panel import panel_digest
from nvtrader_pipelines.runs.ingestion import pin_panels
from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.panels import Panels, pinned_snapshots, read_panel
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.tables import BARS, CLEAN_BARS, FEATURES, RETURNS
from tests.markets import INGESTED_AT, csv_file, market_tables, synthetic_bars

pytestmark = pytest.mark.slow
LATER = INGESTED_AT + dt.timedelta(hours=1)


def test_panel_is_read_at_its_pinned_snapshots(tables):
    _derive(tables, seed=0)
    assert pin_panels(tables, INGESTED_AT).summary == "1 panel pinned"
    before = read_panel(tables, "landing")
    pinned = pinned_snapshots(tables, "landing")
    _derive(tables, seed=1)
    assert panel_digest(read_panel(tables, "landing")) == panel_digest(before)
    assert before.snapshot_ids == pinned
    pin_panels(tables, LATER)
    assert panel_digest(read_panel(tables, "landing")) != panel_digest(before)
    assert panel_digest(read_panel(tables, "landing", snapshot_ids=pinned)) == panel_digest(before)


def test_snapshot_without_highs_keeps_its_panel_and_a_new_one_has_highs(tables):
    _derive(tables, seed=0, returns=replace(RETURNS, schema=RETURNS.schema.without("adj_high", "adj_low")))
    pin_panels(tables, INGESTED_AT)
    before = read_panel(tables, "landing")
    assert (before.high_returns, before.low_returns) == (None, None)
    _derive(tables, seed=0)
    pin_panels(tables, LATER)
    after = read_panel(tables, "landing")
    assert (after.high_returns > after.low_returns).all()
    assert panel_digest(replace(after, high_returns=None, low_returns=None)) == panel_digest(before)
    assert panel_digest(read_panel(tables, "landing", snapshot_ids=before.snapshot_ids)) == panel_digest(before)


@pytest.fixture(scope="module")
def pinned_tables(tmp_path_factory):
    """Tables of a home with a pinned panel; only to be read."""
    tables = Store(Home(tmp_path_factory.mktemp("pinned") / "home")).tables
    _derive(tables, seed=0)
    pin_panels(tables, INGESTED_AT)
    return tables


def test_panel_of_some_symbols_has_only_these(pinned_tables):
    assert read_panel(pinned_tables, "landing", ["BBB", "AAA"]).symbols == ("AAA", "BBB")


def test_names_of_a_whole_source_are_those_of_its_panel_and_build_none(pinned_tables):
    panels, panel = Panels(pinned_tables), read_panel(pinned_tables, "landing")
    assert panels.symbols_and_features(MarketChoice(source="landing")) == (panel.symbols, panel.feature_names)
    assert panels.known == {}


def test_names_of_another_choice_are_those_of_its_panel(pinned_tables):
    some = MarketChoice(source="landing", symbols=("BBB", "AAA"))
    assert Panels(pinned_tables).symbols_and_features(some) == (
        ("AAA", "BBB"),
        read_panel(pinned_tables, "landing").feature_names,
    )
    with pytest.raises(ValueError):
        Panels(pinned_tables).symbols_and_features(MarketChoice(source="landing", symbols=("ZZZ",)))


def test_names_of_a_source_without_panel_are_refused(tables):
    with pytest.raises(StorageError):
        Panels(tables).symbols_and_features(MarketChoice(source="landing"))


def test_source_without_panel_is_refused_with_known_sources(tables, pinned_tables):
    with pytest.raises(StorageError):
        read_panel(tables, "yahoo")
    with pytest.raises(StorageError, match="landing"):
        read_panel(pinned_tables, "yahoo")


@pytest.mark.parametrize(
    ("source", "remedy"),
    [
        ("sample", "`nvtrader ingest` builds it"),
        ("landing", "put its files into data/landing, then `nvtrader ingest` builds it"),
        ("yahoo", "list a source named yahoo in data/market.yaml, then `nvtrader ingest` builds it"),
    ],
)
def test_source_without_panel_is_refused_with_the_way_to_it(tables, source, remedy):
    tables.home.market_file.unlink(missing_ok=True)  # the default lists sample and landing
    with pytest.raises(StorageError) as caught:
        read_panel(tables, source)
    assert str(caught.value).endswith(f"(sources with a panel: none); {remedy}")


def test_landed_files_without_panel_only_need_to_be_built(tables):
    tables.home.landing.mkdir(parents=True, exist_ok=True)
    (tables.home.landing / "prices.csv").write_text("symbol,date\n")
    with pytest.raises(StorageError, match="nvtrader ingest"):
        read_panel(tables, "landing")


def test_symbol_with_long_gap_is_left_out_of_the_pinned_panel(tables):
    _derive(tables, seed=0, without=slice(300, 312))
    pinned = pin_panels(tables, INGESTED_AT)
    assert pinned.n_panels == 1
    assert "AAA" in pinned.left_out["landing"]
    assert Panels(tables).symbols_and_features(MarketChoice(source="landing"))[0] == ("BBB", "CCC")
    assert Panels(tables).read(MarketChoice(source="landing", max_gap=12)).symbols == ("AAA", "BBB", "CCC")


def test_source_without_usable_symbol_is_left_out_with_a_reason(tables):
    _derive(tables, seed=0, without=slice(300, 312), symbols=("AAA",))
    pinned = pin_panels(tables, INGESTED_AT)
    assert pinned.n_panels == 0
    wider = MarketChoice(source="landing", max_gap=12)
    assert Panels(tables).read(wider).symbols == Panels(tables).symbols_and_features(wider)[0] == ("AAA",)
    with pytest.raises(ValueError):
        Panels(tables).read(MarketChoice(source="landing", max_gap=11))
    assert "AAA" in pinned.left_out["landing"]
    with pytest.raises(StorageError, match="AAA"):
        read_panel(tables, "landing")


def _derive(tables, seed, without=slice(0), symbols=("AAA", "BBB", "CCC"), returns=RETURNS):
    bars = synthetic_bars(n_sessions=420, seed=seed).filter(pl.col("symbol").is_in(symbols))
    missing = bars.filter(pl.col("symbol") == "AAA")["date"][without]
    bars = bars.filter(~((pl.col("symbol") == "AAA") & pl.col("date").is_in(missing.implode())))
    derived = market_tables(csv_file(bars))
    for table, rows in (
        (BARS, derived.bars),
        (CLEAN_BARS, derived.clean_bars),
        (returns, derived.returns.select(returns.schema.names())),
        (FEATURES, derived.features),
    ):
        tables.replace(table, rows, {})
