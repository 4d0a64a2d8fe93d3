from typing import get_args

import pytest

from nvtrader_pipelines.market.calendar import TradingCalendar
from nvtrader_pipelines.orchestration import materialize
from nvtrader_pipelines.orchestration.partitions import RANGE_END, RANGE_START
from nvtrader_pipelines.runs.applications import (
    app_content,
    app_source,
    deliver_app_files,
    month_to_trade,
    store_app,
)
from nvtrader_pipelines.service.operations.arguments import App
from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.home import create_home
from nvtrader_pipelines.storage.specs import read_experiment, read_market
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.tables import RETURNS
from tests.markets import synthetic_bars

pytestmark = pytest.mark.slow
APPS = get_args(get_args(App)[0])
SERIES = "symbol,published,field,value\nAAA,2015-02-03,pe,20\nBBB,2015-02-03,pe,10\nCCC,2015-02-03,pe,5\n"


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """Home with stocks, their fundamentals, and coins, all delivered by applications; only read."""
    files = tmp_path_factory.mktemp("files")
    synthetic_bars(n_sessions=756).write_csv(files / "stocks.csv")
    (files / "ratios.csv").write_text(SERIES)
    synthetic_bars(n_sessions=756, opens=False, calendar=TradingCalendar("24/7")).write_csv(files / "coins.csv")
    home = create_home(tmp_path_factory.mktemp("apps") / "home")
    home.market_file.write_text("# ours\nsources:\n  - kind: landing\n")
    deliver_app_files(home, "fundamentals", [files / "stocks.csv", files / "ratios.csv"])
    deliver_app_files(home, "crypto", [files / "coins.csv"])
    with pytest.MonkeyPatch.context() as patch:  # years without a bar cost events of every asset, too
        patch.setattr(materialize, "whole_history_tags", lambda: {RANGE_START: "2015", RANGE_END: "2018"})
        materialize.update_market(Store(home), quiet=True)
    return Store(home)


def test_coins_get_a_source_that_never_closes_and_the_market_file_keeps_its_text(store):
    assert store.home.market_file.read_text().startswith("# ours\n")
    assert read_market(store.home).calendars.of("coins").never_closes
    assert (store.home.landing / "coins" / "coins.csv").is_file()
    assert [app_source(store, app) for app in APPS] == ["landing", "landing", "coins", "landing", "landing"]


@pytest.mark.parametrize("app", APPS)
def test_app_is_stored_as_an_experiment_that_fits_its_market(store, app):
    name = store_app(store, app, 2048)
    spec = read_experiment(store.home.experiments / f"{name}.yaml")
    assert (spec.name, spec.splitter.test_months) == (name, 4)
    assert {spec.agent_of(seed).total_timesteps for seed in spec.seeds} == {2048}


def test_features_of_an_app_follow_from_what_the_market_has(store):
    kinds = {app: [one["kind"] for one in app_content(store, app)["market"].get("features", [])] for app in APPS}
    assert kinds["fundamentals"] == ["fundamental"]
    assert {"cci", "dx", "turbulence", "adjusted_close"} <= {*kinds["stock"]}
    coins = app_content(store, "crypto")
    assert (coins["environment"]["rebal_freq"], coins["environment"]["fill"]) == (7, "next_close")


def test_last_month_of_paper_is_the_last_21_sessions(store):
    first, last = month_to_trade(store)
    sessions = store.tables.read(RETURNS, {"source": ["landing"]})["session"].unique().sort()
    assert (first, last) == (sessions[-21], sessions[-1])


def test_app_without_its_data_is_refused(tmp_path):
    home = create_home(tmp_path / "home")
    with pytest.raises(ValueError, match="coins"):
        app_content(Store(home), "crypto")
    with pytest.raises(StorageError, match="sample"):
        app_content(Store(home), "stock")


@pytest.mark.parametrize("text", ["sources: [{kind: sample}]\n", "sources:\n- kind: sample\n"])
def test_market_file_that_cannot_be_appended_to_is_left_as_it_is(tmp_path, text):
    home = create_home(tmp_path / "home")
    home.market_file.write_text(text)
    (tmp_path / "coins.csv").write_text("date,close\n2020-01-01,1\n")
    with pytest.raises(StorageError, match="add it"):
        deliver_app_files(home, "crypto", [tmp_path / "coins.csv"])
    assert home.market_file.read_text() == text
    assert not any(home.landing.rglob("*.csv"))
