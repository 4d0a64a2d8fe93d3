import numpy as np
import pytest

from nvtrader_pipelines.evaluation.stress import BlockBootstrap
from nvtrader_pipelines.evaluation.stress.scenario import CalmMarket, NoWorldError
from tests.evaluation.stress.markets import (
    BEFORE,
    FIRST,
    JUDGED_FROM,
    N_SESSIONS,
    WINDOW,
    calm_market,
    judged,
    random_walks,
)

SMALL = BlockBootstrap(n_worlds=3, n_sessions=63, mean_block=5)


def drawn(world, prices):
    """For each session of a world, the session whose returns it has, found by its cross-section."""
    made = world.panel.close_returns[world.first : world.last + 1]
    past, nights = prices.returns()
    apart = np.nan_to_num(np.abs(made[:, None, :] - past[None, 1:]).max(axis=2), nan=np.inf)
    found = 1 + apart.argmin(axis=1)
    assert apart.min(axis=1).max() < 1e-14
    if world.panel.overnight_returns is not None:
        own = world.panel.overnight_returns[world.first : world.last + 1]
        np.testing.assert_allclose(own, nights[found], atol=1e-14)
    return found


@pytest.mark.parametrize("opens", [True, False])
def test_worlds_are_made_of_whole_sessions_on_which_no_deciding_policy_was_trained(opens):
    prices = random_walks(opens=opens)
    worlds = list(SMALL.worlds(calm_market(prices), np.random.default_rng(1)))
    places = [drawn(world, prices) for world in worlds]
    trained = range(253, 411)
    assert len(worlds) == 3
    assert all(len(place) == 63 and not np.isin(place, trained).any() for place in places)
    assert len({place.tobytes() for place in places}) == 3
    assert all(not world.has_twin and world.note == "drawn from 541 sessions" for world in worlds)
    steps = np.concatenate([np.diff(place) for place in places])
    assert np.mean(steps == 1) == pytest.approx(1 - 1 / SMALL.mean_block, abs=0.08)


def test_a_world_begins_with_the_window_and_the_prices_before_it():
    market = calm_market()
    world = next(iter(SMALL.worlds(market, np.random.default_rng(1))))
    assert world.shock == world.first
    assert world.panel.sessions[world.first] == market.prices.sessions[FIRST]
    assert world.panel.sessions[-1] == market.prices.sessions[FIRST + 62]


def test_volume_is_what_the_session_traded_over_what_it_usually_did():
    prices = random_walks()
    market = calm_market(prices)
    world = next(iter(SMALL.worlds(market, np.random.default_rng(1))))
    place = drawn(world, prices)[0]
    usual = prices.volumes[FIRST - 21 : FIRST].mean(axis=0)
    volume = usual * prices.volumes[place] / prices.volumes[place - 21 : place].mean(axis=0)
    logs = np.log1p(np.concatenate([prices.volumes[FIRST - 20 : FIRST], volume[None]]))
    score = (logs[-1] - logs.mean(axis=0)) / logs.std(axis=0, ddof=1)
    np.testing.assert_allclose(world.panel.feature("volume_z_21")[world.first], score, rtol=1e-9)


def test_a_session_on_which_a_name_did_not_trade_or_the_day_after_is_not_drawn():
    prices = random_walks().without(200, 201, np.array([True, False, False, False]))
    worlds = SMALL.worlds(calm_market(prices), np.random.default_rng(0))
    assert {world.note for world in worlds} == {"drawn from 539 sessions; AAA lacks bars for 2 others"}


def test_names_that_nobody_chose_keep_no_session_from_being_drawn():
    prices = random_walks().without(430, 500, np.array([False, False, False, True]))
    parts = (judged(prices),)
    market = CalmMarket.of(prices.rows(), parts, (WINDOW, BEFORE), ("AAA", "BBB"))
    worlds = list(BlockBootstrap(n_sessions=WINDOW).worlds(market, np.random.default_rng(0)))
    assert {world.note for world in worlds} == {"drawn from 541 sessions"}
    assert all(world.panel.eligible[world.first :].all() for world in worlds)


def test_a_name_without_a_bar_just_before_the_window_goes_on_from_its_last_price():
    prices = random_walks().without(FIRST - 2, FIRST, np.array([True, False, False, False]))
    world = next(iter(SMALL.worlds(calm_market(prices), np.random.default_rng(0))))
    assert world.panel.tradable[world.first :].all()
    assert len(drawn(world, prices)) == SMALL.n_sessions


def test_a_name_that_was_delisted_before_the_window_has_no_bar_in_it():
    prices = random_walks().without(80, N_SESSIONS, np.array([False, False, False, True]))
    market = calm_market(prices)
    for world in (market.calm(), next(iter(SMALL.worlds(market, np.random.default_rng(0))))):
        assert world.panel.symbols == ("AAA", "BBB", "CCC", "DDD")
        assert not world.panel.tradable[world.first :, 3].any()


def test_a_name_listed_in_the_window_has_no_bar_in_what_is_drawn():
    prices = random_walks().without(0, FIRST + 2, np.array([False, False, False, True]))
    for world in SMALL.worlds(calm_market(prices), np.random.default_rng(0)):
        assert world.note == "drawn from 541 sessions; without DDD, listed in the window"
        assert world.panel.symbols == ("AAA", "BBB", "CCC", "DDD")
        assert world.panel.tradable.any(axis=0).tolist() == [True, True, True, False]


def test_worlds_longer_than_the_window_or_than_what_there_is_to_draw_from_are_refused():
    prices = random_walks()
    with pytest.raises(NoWorldError, match=f"worlds of 101 sessions do not fit a window of {WINDOW}"):
        BlockBootstrap(n_sessions=101).worlds(calm_market(prices), np.random.default_rng(0))
    all_trained = judged(prices, JUDGED_FROM + 220, trained=(0, JUDGED_FROM + 219))
    with pytest.raises(
        NoWorldError, match=r"only 60 trained no policy that decides .* every name traded on 60 of them"
    ):
        BlockBootstrap(n_sessions=60 + 3).worlds(calm_market(prices, judged(prices, trained=None), all_trained), None)


def test_who_keeps_sessions_from_being_drawn_is_named():
    prices = random_walks().without(0, FIRST - 20, np.array([True, False, False, False]))
    prices = prices.without(FIRST + 1, N_SESSIONS, np.array([True, False, False, False]))
    with pytest.raises(NoWorldError, match=r"traded on 20 of them; AAA lacks bars for 521 others"):
        SMALL.worlds(calm_market(prices), np.random.default_rng(0))
