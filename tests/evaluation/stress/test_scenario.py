from datetime import timedelta

import numpy as np
import pytest

from nvtrader_pipelines.evaluation.splits import Block
from nvtrader_pipelines.evaluation.stress import Gap, MissingData
from nvtrader_pipelines.evaluation.stress.scenario import CalmMarket, NoWorldError
from tests.evaluation.stress.markets import (
    BEFORE,
    FIRST,
    JUDGED_FROM,
    N_SESSIONS,
    SHOCK,
    WINDOW,
    calm_market,
    day,
    judged,
    random_walks,
)


def test_the_calm_world_is_the_last_sessions_that_may_be_judged():
    prices = random_walks()
    world = calm_market(prices, judged(prices, last=N_SESSIONS - 11)).calm()
    assert (world.scenario, world.shock, world.has_twin) == ("calm", None, True)
    assert world.last - world.first + 1 == WINDOW
    assert world.panel.sessions[world.last] == prices.sessions[N_SESSIONS - 11] == world.panel.sessions[-1]


def test_the_panel_of_a_window_is_that_of_the_whole_past_but_for_the_rounding_of_long_averages():
    market = calm_market()
    recent, whole = market.calm().panel, market.panel
    start = whole.index_of(recent.sessions[0])
    assert 0 < start == len(whole.sessions) - len(recent.sessions)
    for name in ("close_returns", "overnight_returns", "tradable", "delisted", "eligible"):
        np.testing.assert_array_equal(getattr(recent, name), getattr(whole, name)[start:])
    np.testing.assert_allclose(recent.features, whole.features[start:], rtol=1e-6, atol=1e-12)


def test_a_name_listed_after_the_last_session_judged_has_its_place_and_no_bar():
    prices = random_walks().without(0, N_SESSIONS - 5, np.array([False, True, False, False]))
    market = calm_market(prices, judged(prices, last=N_SESSIONS - 11))
    ((gap,), (name_less,)) = (each.worlds(market, np.random.default_rng(0)) for each in (Gap(), MissingData()))
    for panel in (market.panel, market.calm().panel, gap.panel, name_less.panel):
        assert panel.symbols == ("AAA", "BBB", "CCC", "DDD")
        for name in ("tradable", "delisted", "eligible", "features", "close_returns", "overnight_returns"):
            assert not getattr(panel, name)[:, 1].any()
            assert name == "delisted" or getattr(panel, name)[:, [0, 2, 3]].any()


def test_chosen_names_that_are_listed_later_have_their_place_and_unknown_ones_are_refused():
    prices = random_walks().without(0, N_SESSIONS - 5, np.array([False, True, False, False]))
    chosen = prices.rows(), (judged(prices, last=N_SESSIONS - 11),), (WINDOW, BEFORE)
    market = CalmMarket.of(*chosen, ("CCC", "BBB"))
    assert market.calm().panel.symbols == ("BBB", "CCC")
    assert market.calm().panel.eligible.any(axis=0).tolist() == [False, True]
    with pytest.raises(ValueError, match="the market has no bars of ZZZ"):
        CalmMarket.of(*chosen, ("AAA", "ZZZ"))


def test_each_session_is_decided_by_the_policies_of_the_fold_that_tests_it():
    prices = random_walks()
    parts = judged(prices, JUDGED_FROM, SHOCK - 1, 3), judged(prices, SHOCK, -1, 4, trained=(253, SHOCK - 7))
    world = calm_market(prices, *parts).calm()
    first, shock, last = (world.panel.index_of(prices.sessions[t]) for t in (FIRST, SHOCK, N_SESSIONS - 1))
    assert world.blocks == (Block(3, first, shock - 1), Block(4, shock, last))


def test_of_two_folds_that_may_be_judged_on_a_session_the_last_one_decides():
    prices = random_walks()
    world = calm_market(prices, judged(prices, fold=1), judged(prices, fold=2)).calm()
    assert [block.index for block in world.blocks] == [2]


def test_sessions_trained_on_are_those_of_the_folds_that_decide_in_the_window():
    prices = random_walks()
    earlier = judged(prices, JUDGED_FROM, FIRST - 1, 0, trained=(260, 300))
    market = calm_market(prices, earlier, judged(prices, FIRST, -1, 1, trained=(310, 400)))
    assert np.flatnonzero(market.trained_on).tolist() == list(range(310, 401))


def test_policies_may_not_be_judged_on_what_they_were_trained_on():
    prices = random_walks()
    with pytest.raises(ValueError, match=r"fold 0 were trained on sessions from .* may not be judged"):
        judged(prices, trained=(300, JUDGED_FROM))


@pytest.mark.parametrize("moved", [-2000, 2000])
def test_sessions_outside_the_market_cannot_be_judged(moved):
    prices = random_walks()
    part = judged(prices, trained=None)
    outside = type(part)(0, part.first + timedelta(days=moved), part.last + timedelta(days=moved))
    with pytest.raises(ValueError, match=r"the market's, 2015-01-02 to 2017-10-\d\d, but they may be judged from"):
        calm_market(prices, outside)


def test_a_stress_test_on_no_sessions_is_refused():
    with pytest.raises(ValueError, match="may be judged on none"):
        CalmMarket.of(random_walks().rows(), (), (WINDOW, BEFORE))


def test_a_window_with_a_hole_is_refused():
    prices = random_walks()
    parts = judged(prices, JUDGED_FROM, SHOCK), judged(prices, SHOCK + 2)
    with pytest.raises(ValueError, match="must follow one another"):
        calm_market(prices, *parts).calm()


def test_a_shock_that_does_not_end_within_the_window_has_no_world():
    market = calm_market()
    assert market.begin(0.5, WINDOW // 2) == SHOCK
    with pytest.raises(NoWorldError, match=f"a shock of 51 sessions from {day(market.prices, SHOCK)} on must end"):
        market.begin(0.5, WINDOW // 2 + 1)


def test_a_shock_on_a_session_without_any_price_has_no_world():
    prices = random_walks().without(SHOCK, SHOCK + 1, np.ones(4, dtype=bool))
    with pytest.raises(NoWorldError, match=f"no name has a price on {day(prices, SHOCK)}"):
        calm_market(prices).begin(0.5, 1)
