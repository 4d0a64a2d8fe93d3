from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.panel_prices import read_prices
from nvtrader_pipelines.storage.panels import read_panel
from nvtrader_pipelines.storage.tables import CLEAN_BARS
from tests.runs.small_runs import small_home

MISSING_SESSION = 100  # of the panel, where a name loses its bar


@pytest.fixture(scope="module")
def market(tmp_path_factory):
    tables = small_home(tmp_path_factory.mktemp("prices") / "home").tables
    return tables, read_panel(tables, "landing")


def test_prices_match_tradability_and_returns_of_the_panel(market):
    tables, panel = market
    prices = read_prices(tables, panel)
    assert prices.closes.shape == panel.close_returns.shape
    np.testing.assert_array_equal(np.isfinite(prices.closes), panel.tradable)
    np.testing.assert_allclose(prices.closes[1:] / prices.closes[:-1] - 1.0, panel.close_returns[1:], atol=1e-14)
    np.testing.assert_allclose(prices.opens[1:] / prices.closes[:-1] - 1.0, panel.overnight_returns[1:], atol=1e-14)


def test_prices_and_volumes_have_the_same_adjustment(market):
    tables, panel = market
    prices, bars = read_prices(tables, panel), tables.read(CLEAN_BARS).sort("symbol", "session")
    (bar,) = bars.filter(
        (pl.col("symbol") == panel.symbols[1]) & (pl.col("session") == panel.sessions[5].item())
    ).to_dicts()
    assert prices.closes[5, 1] == bar["adj_close"] != bar["close"]
    assert prices.opens[5, 1] == pytest.approx(bar["open"] * bar["adj_close"] / bar["close"], rel=1e-15)
    assert prices.volumes[5, 1] * prices.closes[5, 1] == pytest.approx(bar["volume"] * bar["close"], rel=1e-12)


@pytest.mark.slow
def test_session_without_bar_has_no_price_but_a_last_close(market):
    tables, panel = market
    bars, t = tables.read(CLEAN_BARS), MISSING_SESSION
    missing = (pl.col("symbol") == panel.symbols[0]) & (pl.col("session") == panel.sessions[t].item())
    tables.replace(CLEAN_BARS, bars.filter(~missing), {})
    prices, pinned = read_prices(tables, replace(panel, snapshot_ids={})), read_prices(tables, panel)
    tables.replace(CLEAN_BARS, bars, {})
    assert np.isnan([prices.opens[t, 0], prices.closes[t, 0], prices.volumes[t, 0]]).all()
    assert prices.last_closes[t, 0] == prices.closes[t - 1, 0] == prices.last_closes[t - 1, 0]
    assert np.isfinite(pinned.closes[t, 0])  # at the snapshot of the panel


def test_symbols_without_bars_are_refused(market):
    tables, panel = market
    with pytest.raises(StorageError):
        read_prices(tables, replace(panel, symbols=("ZZZ",)))
