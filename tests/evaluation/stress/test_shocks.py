import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nvtrader_pipelines.evaluation.stress import (
    CorrelationToOne,
    FlashCrash,
    Gap,
    MissingData,
    OneNameToZero,
    VolatilityTimes,
)
from nvtrader_pipelines.evaluation.stress.scenario import NoWorldError
from tests.evaluation.stress.markets import FIRST, N_SESSIONS, SHOCK, calm_market, random_walks, still

GENERATOR = np.random.default_rng(0)
LENGTH = 42


def played(stress, market):
    """The only world of a scenario, and the session of its shock."""
    (world,) = stress.worlds(market, np.random.default_rng(0))
    return world.panel, world.shock


def logs(panel, first, n):
    return np.log1p(panel.close_returns[first : first + n])


def test_a_gap_takes_the_same_share_of_every_price_overnight_and_never_again():
    panel, shock = played(Gap(loss=0.2), calm_market(still()))
    assert panel.sessions[shock] == still().sessions[SHOCK]
    np.testing.assert_allclose(panel.overnight_returns[shock], -0.2, rtol=1e-15)
    np.testing.assert_allclose(panel.close_returns[shock], -0.2, rtol=1e-15)
    assert np.count_nonzero(panel.close_returns) == np.count_nonzero(panel.overnight_returns) == 4


def test_without_opens_a_gap_is_in_the_close():
    panel, shock = played(Gap(loss=0.2), calm_market(random_walks(opens=False)))
    calm = calm_market(random_walks(opens=False)).calm().panel
    assert panel.overnight_returns is None
    np.testing.assert_allclose(1 + panel.close_returns[shock], 0.8 * (1 + calm.close_returns[shock]), rtol=1e-14)


def test_a_name_without_a_bar_has_the_gap_in_its_next_price():
    prices = random_walks().without(SHOCK, SHOCK + 2, np.array([True, False, False, False]))
    calm = calm_market(prices).calm().panel
    panel, shock = played(Gap(), calm_market(prices))
    np.testing.assert_array_equal(panel.close_returns[shock : shock + 2, 0], 0.0)
    assert 1 + panel.close_returns[shock + 2, 0] == pytest.approx(0.8 * (1 + calm.close_returns[shock + 2, 0]), 1e-14)


def test_a_flash_crash_falls_by_day_and_recovers_by_equal_parts():
    panel, shock = played(FlashCrash(loss=0.36, recovery=2), calm_market(still()))
    np.testing.assert_array_equal(panel.overnight_returns, 0.0)
    np.testing.assert_allclose(panel.close_returns[shock : shock + 3, 0], [-0.36, 0.25, 0.25], rtol=1e-14)
    assert np.count_nonzero(panel.close_returns) == 12


def test_after_a_flash_crash_prices_have_the_bits_they_had():
    market = calm_market()
    panel, shock = played(FlashCrash(recovery=5), market)
    np.testing.assert_array_equal(panel.close_returns[shock + 6 :], market.calm().panel.close_returns[shock + 6 :])


def test_the_name_that_rose_most_loses_a_millionth_less_than_all_and_has_no_bar_after():
    prices = random_walks()
    gains = prices.closes[SHOCK - 1] / prices.closes[SHOCK - 1 - 252]
    (world,) = OneNameToZero().worlds(calm_market(prices), GENERATOR)
    panel, shock, fallen = world.panel, world.shock, int(np.argmax(gains))
    assert world.note.startswith(f"{prices.symbols[fallen]}, which had gained {gains[fallen] - 1:.0%} in 252 sessions")
    assert 1 + panel.close_returns[shock, fallen] == pytest.approx(1e-6, rel=1e-9)
    assert 1 + panel.overnight_returns[shock, fallen] == pytest.approx(1e-6, rel=1e-9)
    assert panel.tradable[: shock + 1, fallen].all()
    assert not panel.tradable[shock + 1 :, fallen].any()
    assert panel.delisted[-1].tolist() == [name == fallen for name in range(4)]
    others, calm = np.arange(4) != fallen, calm_market(prices).calm().panel
    np.testing.assert_array_equal(panel.close_returns[:, others], calm.close_returns[:, others])


def test_of_names_that_rose_alike_the_first_by_symbol_falls():
    panel, shock = played(OneNameToZero(), calm_market(still()))
    assert panel.close_returns[shock].tolist() == [pytest.approx(-1 + 1e-6), 0.0, 0.0, 0.0]


@pytest.mark.parametrize(("n_symbols", "lookback"), [(1, 252), (2, 800)])
def test_one_name_to_zero_needs_another_name_and_a_price_long_enough_ago(n_symbols, lookback):
    with pytest.raises(NoWorldError, match=f"the highest return over {lookback} sessions before .* needs two names"):
        played(OneNameToZero(lookback=lookback), calm_market(random_walks(n_symbols)))


def test_correlation_to_one_moves_all_names_together_with_the_mean_and_volatility_of_each():
    market = calm_market()
    panel, shock = played(CorrelationToOne(n_sessions=LENGTH), market)
    calm, stressed = (logs(each, shock, LENGTH) for each in (market.calm().panel, panel))
    assert np.corrcoef(stressed.T).min() == pytest.approx(1.0, abs=1e-12)
    assert np.corrcoef(calm.T).min() < 0.5
    np.testing.assert_allclose(stressed.mean(axis=0), calm.mean(axis=0), atol=1e-15)
    np.testing.assert_allclose(stressed.std(axis=0), calm.std(axis=0), rtol=1e-12)
    day = np.log1p(panel.close_returns) - np.log1p(panel.overnight_returns)
    calm_day = np.log1p(market.calm().panel.close_returns) - np.log1p(market.calm().panel.overnight_returns)
    np.testing.assert_allclose(day, calm_day, atol=1e-14)


def test_after_a_stretch_prices_are_where_they_were():
    market = calm_market()
    for stress in (CorrelationToOne(n_sessions=LENGTH), VolatilityTimes(n_sessions=LENGTH)):
        panel, shock = played(stress, market)
        after, calm = shock + LENGTH, market.calm().panel
        np.testing.assert_allclose(panel.close_returns[after:], calm.close_returns[after:], rtol=1e-9, atol=1e-14)
        growth, was = (np.prod(1 + each.close_returns[shock:after], axis=0) for each in (panel, calm))
        np.testing.assert_allclose(growth, was, rtol=1e-12)


def test_a_name_that_stands_still_or_misses_a_bar_moves_as_far_as_it_can():
    prices = random_walks()
    prices.closes[:, 0] = prices.opens[:, 0] = 50.0
    prices = prices.without(SHOCK + 3, SHOCK + 4, np.array([False, True, False, False]))
    panel, shock = played(CorrelationToOne(n_sessions=LENGTH), calm_market(prices))
    stressed = logs(panel, shock, LENGTH)
    np.testing.assert_array_equal(stressed[:, 0], 0.0)
    there = np.arange(LENGTH) != 3
    assert np.corrcoef(stressed[there, 1:].T).min() == pytest.approx(1.0, abs=1e-12)


def test_names_that_all_stand_still_have_nothing_in_common():
    with pytest.raises(NoWorldError, match="no name moves in the 42 sessions"):
        played(CorrelationToOne(n_sessions=LENGTH), calm_market(still()))


def test_the_few_opens_that_a_name_has_stay_where_they_were_between_its_closes():
    prices = random_walks()
    known = [SHOCK + 2, SHOCK + 9]
    prices.opens[np.setdiff1d(np.arange(N_SESSIONS), known), 0] = np.nan
    market = calm_market(prices)
    panel, shock = played(VolatilityTimes(n_sessions=LENGTH), market)
    at = [shock + 2, shock + 9]
    nights = [each.overnight_returns[at, 0] for each in (market.calm().panel, panel)]
    np.testing.assert_allclose(nights[1], nights[0], rtol=1e-9)
    assert not np.isclose(panel.overnight_returns[at, 0], panel.close_returns[at, 0]).any()


@settings(max_examples=10)
@given(factor=st.floats(1.01, 10.0), seed=st.integers(0, 3))
def test_volatility_is_multiplied_around_the_same_mean_by_night_and_by_day(factor, seed):
    market = calm_market(random_walks(2, seed))
    panel, shock = played(VolatilityTimes(factor=factor, n_sessions=LENGTH), market)
    calm, stressed = (logs(each, shock, LENGTH) for each in (market.calm().panel, panel))
    np.testing.assert_allclose(stressed - calm.mean(axis=0), factor * (calm - calm.mean(axis=0)), atol=1e-12)
    nights = [np.log1p(each.overnight_returns[shock : shock + LENGTH]) for each in (market.calm().panel, panel)]
    np.testing.assert_allclose(nights[1].std(axis=0), factor * nights[0].std(axis=0), rtol=1e-9)
    assert (panel.close_returns > -1.0).all()


@pytest.mark.parametrize(("share", "n_missing"), [(1.0, 4), (0.5, 2), (0.1, 1)])
def test_missing_data_comes_back_as_it_was(share, n_missing):
    market = calm_market()
    panel, shock = played(MissingData(n_sessions=5, share=share), market)
    gone = ~panel.tradable[shock]
    assert gone.sum() == n_missing
    assert not panel.tradable[shock : shock + 5, gone].any()
    assert panel.tradable[:, ~gone].all()
    assert panel.tradable[shock + 5 :].all()
    calm = market.calm().panel.close_returns[shock : shock + 6, gone]
    np.testing.assert_allclose(1 + panel.close_returns[shock + 5, gone], np.prod(1 + calm, axis=0), rtol=1e-14)


def test_a_longer_gap_than_the_market_bears_has_no_world():
    with pytest.raises(NoWorldError, match=r"6 sessions without bars from .* bears \(max_gap 5\) of any name"):
        played(MissingData(n_sessions=6), calm_market())
    panel, shock = played(MissingData(n_sessions=6), calm_market(max_gap=6))
    assert not panel.tradable[shock : shock + 6].any()


@pytest.mark.parametrize("own", [SHOCK + 5, SHOCK - 1])
def test_a_name_whose_own_missing_bar_would_make_the_gap_too_long_is_spared(own):
    prices = random_walks().without(own, own + 1, np.arange(4) == 2)
    (world,) = MissingData().worlds(calm_market(prices), GENERATOR)
    assert world.panel.tradable[world.shock].tolist() == [False, False, True, False]
    assert world.note.startswith("3 of 4 names; never CCC, whose gap would be too long; ")
    (bearing,) = MissingData().worlds(calm_market(prices, max_gap=6), GENERATOR)
    assert not bearing.panel.tradable[bearing.shock].any()


def test_names_that_are_not_there_do_not_count_as_missing():
    prices = random_walks().without(FIRST - 30, N_SESSIONS, np.arange(4) >= 2)
    for seed in range(4):
        (world,) = MissingData(share=0.5).worlds(calm_market(prices), np.random.default_rng(seed))
        assert world.panel.tradable[world.shock].sum() == 1
        assert world.note.startswith("1 of 2 names; ")


def test_the_note_tells_until_when_missing_names_may_not_be_held():
    (world,) = MissingData().worlds(calm_market(), GENERATOR)
    all_of_them = world.panel.eligible.all(axis=1)
    until = world.panel.index_of(np.datetime64(world.note[-10:]))
    assert all_of_them[until]
    assert not all_of_them[world.shock : until].any()
    assert until - world.shock > 20
    (late,) = MissingData(at=0.9).worlds(calm_market(), GENERATOR)
    assert late.note.endswith("not all of them eligible again in the window")


def test_a_gap_that_grows_too_long_for_every_name_has_no_world():
    prices = random_walks().without(SHOCK + 5, SHOCK + 7, np.ones(4, dtype=bool))
    with pytest.raises(NoWorldError, match="more than the market bears"):
        played(MissingData(), calm_market(prices))


def test_only_chosen_names_fall_or_miss_bars():
    prices = random_walks(4)
    market = calm_market(prices)
    few = type(market).of(prices.rows(), market.out_of_sample, (market.n_sessions, market.n_before), ("AAA", "BBB"))
    assert few.panel.symbols == ("AAA", "BBB")
    (fallen,) = OneNameToZero().worlds(few, GENERATOR)
    assert fallen.note[:3] in few.panel.symbols
    (missing,) = MissingData(share=0.5).worlds(few, GENERATOR)
    assert (~missing.panel.tradable[missing.shock]).sum() == 1
    assert missing.note.startswith("1 of 2 names; ")


@pytest.mark.parametrize("stress", [Gap(at=0.0), Gap(at=0.999), FlashCrash(at=0.0), OneNameToZero(at=0.0)])
def test_a_shock_comes_at_its_share_of_the_window(stress):
    panel, shock = played(stress, calm_market())
    assert panel.sessions[shock] == random_walks().sessions[FIRST if stress.at == 0.0 else N_SESSIONS - 1]
