from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from nvtrader_pipelines.evaluation.splits import Block
from nvtrader_pipelines.evaluation.stress import Gap
from nvtrader_pipelines.evaluation.stress.scenario import PanelChoice, ScenarioUnavailableError, UnstressedMarket
from nvtrader_pipelines.market.calendar import NEW_YORK
from nvtrader_pipelines.market.features import Vix, compute_features
from nvtrader_pipelines.market.panel import PANEL_ARRAYS, build_panel
from nvtrader_pipelines.market.series import SeriesUnavailable
from nvtrader_pipelines.market.series_files import ingest_series
from nvtrader_pipelines.market.sources import LandedFile
from tests.evaluation.stress.markets import (
    BEFORE,
    FIRST,
    JUDGED_FROM,
    N_SESSIONS,
    SHOCK,
    WINDOW,
    judged,
    random_walks,
    unstressed_market,
    without,
)


def test_unstressed_market_is_the_last_out_of_sample_sessions():
    prices = random_walks()
    stressed = unstressed_market(prices, judged(prices, last=N_SESSIONS - 11)).unstressed()
    assert (stressed.scenario, stressed.shock, stressed.has_twin) == ("unstressed", None, True)
    assert stressed.last - stressed.first + 1 == WINDOW
    assert stressed.panel.sessions[stressed.last] == prices.sessions[N_SESSIONS - 11] == stressed.panel.sessions[-1]


def test_window_panel_equals_full_history_panel_up_to_rounding():
    market = unstressed_market()
    recent, whole = market.unstressed().panel, market.panel
    start = whole.index_of(recent.sessions[0])
    assert 0 < start == len(whole.sessions) - len(recent.sessions)
    for name in set(PANEL_ARRAYS) - {"features"}:
        np.testing.assert_array_equal(getattr(recent, name), getattr(whole, name)[start:])
    np.testing.assert_allclose(recent.features, whole.features[start:], rtol=1e-6, atol=1e-12)


def test_given_panel_is_cut_to_the_one_built_of_the_rows():
    prices = without(random_walks(), 0, N_SESSIONS - 5, np.array([False, True, False, False]))
    parts, n_sessions = (judged(prices, last=N_SESSIONS - 11),), (WINDOW, BEFORE)
    rows = prices.rows()
    choice = PanelChoice(NEW_YORK)
    built = UnstressedMarket.of(rows, parts, n_sessions, choice).panel
    panel = build_panel(rows, compute_features(rows), NEW_YORK)
    cut = UnstressedMarket.of(rows, parts, n_sessions, choice, panel).panel
    assert built.sessions[-1] == prices.sessions[N_SESSIONS - 11]
    for name in ("sessions", *PANEL_ARRAYS):
        np.testing.assert_array_equal(getattr(cut, name), getattr(built, name))


@pytest.mark.slow
def test_stressed_market_has_the_outside_series_of_the_market():
    prices, days = random_walks(), random_walks().sessions.tolist()
    lines = [f",{day},vix,{n}" for n, day in enumerate(days)]
    content = "\n".join(["symbol,published,field,value", *lines]).encode()
    series = ingest_series([LandedFile("series/vix.csv", content)], datetime(2049, 1, 1, tzinfo=UTC)).rows
    choice = PanelChoice(NEW_YORK, features=[Vix()], series=series)
    market = UnstressedMarket.of(prices.rows(), (judged(prices),), (WINDOW, BEFORE), choice)
    (gap,) = Gap().apply(market, np.random.default_rng(0))
    for panel in (market.panel, gap.panel):
        assert panel.feature("vix")[-1].tolist() == [len(days) - 2.0] * 4
    with pytest.raises(SeriesUnavailable):
        UnstressedMarket.of(prices.rows(), (judged(prices),), (WINDOW, BEFORE), choice._replace(series=None))


def test_name_listed_after_last_judged_session_has_empty_column():
    prices = without(random_walks(), 0, N_SESSIONS - 5, np.array([False, True, False, False]))
    market = unstressed_market(prices, judged(prices, last=N_SESSIONS - 11))
    (gap,) = Gap().apply(market, np.random.default_rng(0))
    for panel in (market.panel, market.unstressed().panel, gap.panel):
        assert panel.symbols == ("AAA", "BBB", "CCC", "DDD")
        for name in PANEL_ARRAYS:
            assert not getattr(panel, name)[:, 1].any()
            assert name == "delisted" or getattr(panel, name)[:, [0, 2, 3]].any()


def test_stressed_market_leaves_out_what_the_market_leaves_out():
    gappy = without(random_walks(), N_SESSIONS - 9, N_SESSIONS - 3, np.array([False, True, False, False]))
    market = unstressed_market(gappy, judged(gappy, last=N_SESSIONS - 11))  # the gap is after the last judged session
    assert market.panel.symbols == ("AAA", "CCC", "DDD")
    assert unstressed_market(gappy, max_gap=6).panel.symbols == ("AAA", "BBB", "CCC", "DDD")


def test_later_listed_names_keep_columns_unknown_names_raise():
    prices = without(random_walks(), 0, N_SESSIONS - 5, np.array([False, True, False, False]))
    chosen = prices.rows(), (judged(prices, last=N_SESSIONS - 11),), (WINDOW, BEFORE)
    market = UnstressedMarket.of(*chosen, PanelChoice(NEW_YORK, ("CCC", "BBB")))
    assert market.unstressed().panel.symbols == ("BBB", "CCC")
    assert market.unstressed().panel.eligible.any(axis=0).tolist() == [False, True]
    with pytest.raises(ValueError):
        UnstressedMarket.of(*chosen, PanelChoice(NEW_YORK, ("AAA", "ZZZ")))


def test_each_session_is_decided_by_the_fold_that_tests_it():
    prices = random_walks()
    parts = judged(prices, JUDGED_FROM, SHOCK - 1, 3), judged(prices, SHOCK, -1, 4, trained=(253, SHOCK - 7))
    stressed = unstressed_market(prices, *parts).unstressed()
    first, shock, last = (stressed.panel.index_of(prices.sessions[t]) for t in (FIRST, SHOCK, N_SESSIONS - 1))
    assert stressed.blocks == (Block(3, first, shock - 1), Block(4, shock, last))


def test_last_of_overlapping_folds_decides():
    prices = random_walks()
    stressed = unstressed_market(prices, judged(prices, fold=1), judged(prices, fold=2)).unstressed()
    assert [block.index for block in stressed.blocks] == [2]


def test_trained_on_covers_folds_that_decide_in_the_window():
    prices = random_walks()
    earlier = judged(prices, JUDGED_FROM, FIRST - 1, 0, trained=(260, 300))
    market = unstressed_market(prices, earlier, judged(prices, FIRST, -1, 1, trained=(310, 400)))
    assert np.flatnonzero(market.trained_on).tolist() == list(range(310, 401))


def test_out_of_sample_overlapping_training_raises():
    prices = random_walks()
    with pytest.raises(ValueError):
        judged(prices, trained=(300, JUDGED_FROM))


@pytest.mark.parametrize("moved", [-2000, 2000])
def test_out_of_sample_outside_the_market_raises(moved):
    prices = random_walks()
    part = judged(prices, trained=None)
    outside = type(part)(0, part.first + timedelta(days=moved), part.last + timedelta(days=moved))
    with pytest.raises(ValueError):
        unstressed_market(prices, outside)


def test_unstressed_market_without_out_of_sample_sessions_raises():
    with pytest.raises(ValueError):
        UnstressedMarket.of(random_walks().rows(), (), (WINDOW, BEFORE), PanelChoice(NEW_YORK))


def test_window_with_a_hole_raises():
    prices = random_walks()
    parts = judged(prices, JUDGED_FROM, SHOCK), judged(prices, SHOCK + 2)
    with pytest.raises(ValueError):
        unstressed_market(prices, *parts).unstressed()


def test_shock_that_outlasts_the_window_is_unavailable():
    market = unstressed_market()
    assert market.shock_start(0.5, WINDOW // 2) == SHOCK
    with pytest.raises(ScenarioUnavailableError):
        market.shock_start(0.5, WINDOW // 2 + 1)


def test_shock_on_a_session_without_prices_is_unavailable():
    prices = without(random_walks(), SHOCK, SHOCK + 1, np.ones(4, dtype=bool))
    with pytest.raises(ScenarioUnavailableError):
        unstressed_market(prices).shock_start(0.5, 1)
