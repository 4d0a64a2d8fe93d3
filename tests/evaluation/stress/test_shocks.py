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
from nvtrader_pipelines.evaluation.stress.scenario import PanelChoice, ScenarioUnavailableError
from tests.evaluation.stress.markets import FIRST, N_SESSIONS, SHOCK, random_walks, still, unstressed_market

GENERATOR = np.random.default_rng(0)
LENGTH = 42


def played(stress, market):
    """The only stressed market of a scenario, and the session of its shock."""
    (stressed,) = stress.apply(market, np.random.default_rng(0))
    return stressed.panel, stressed.shock


def logs(panel, first, n):
    return np.log1p(panel.close_returns[first : first + n])


def test_gap_cuts_every_price_once_overnight():
    panel, shock = played(Gap(loss=0.2), unstressed_market(still()))
    assert panel.sessions[shock] == still().sessions[SHOCK]
    np.testing.assert_allclose(panel.overnight_returns[shock], -0.2, rtol=1e-15)
    np.testing.assert_allclose(panel.close_returns[shock], -0.2, rtol=1e-15)
    assert np.count_nonzero(panel.close_returns) == np.count_nonzero(panel.overnight_returns) == 4


def test_gap_without_opens_is_in_the_close():
    panel, shock = played(Gap(loss=0.2), unstressed_market(random_walks(opens=False)))
    unstressed = unstressed_market(random_walks(opens=False)).unstressed().panel
    assert panel.overnight_returns is None
    np.testing.assert_allclose(1 + panel.close_returns[shock], 0.8 * (1 + unstressed.close_returns[shock]), rtol=1e-14)


def test_gap_of_name_without_bar_is_in_its_next_price():
    prices = random_walks().without(SHOCK, SHOCK + 2, np.array([True, False, False, False]))
    unstressed = unstressed_market(prices).unstressed().panel
    panel, shock = played(Gap(), unstressed_market(prices))
    np.testing.assert_array_equal(panel.close_returns[shock : shock + 2, 0], 0.0)
    assert 1 + panel.close_returns[shock + 2, 0] == pytest.approx(
        0.8 * (1 + unstressed.close_returns[shock + 2, 0]), 1e-14
    )


def test_flash_crash_falls_intraday_and_recovers_in_equal_parts():
    panel, shock = played(FlashCrash(loss=0.36, recovery=2), unstressed_market(still()))
    np.testing.assert_array_equal(panel.overnight_returns, 0.0)
    np.testing.assert_allclose(panel.close_returns[shock : shock + 3, 0], [-0.36, 0.25, 0.25], rtol=1e-14)
    assert np.count_nonzero(panel.close_returns) == 12


def test_flash_crash_restores_prices_bit_by_bit():
    market = unstressed_market()
    panel, shock = played(FlashCrash(recovery=5), market)
    np.testing.assert_array_equal(
        panel.close_returns[shock + 6 :], market.unstressed().panel.close_returns[shock + 6 :]
    )


def test_past_winner_keeps_a_millionth_and_has_no_bar_after():
    prices = random_walks()
    gains = prices.closes[SHOCK - 1] / prices.closes[SHOCK - 1 - 252]
    (stressed,) = OneNameToZero().apply(unstressed_market(prices), GENERATOR)
    panel, shock, fallen = stressed.panel, stressed.shock, int(np.argmax(gains))
    assert stressed.note.startswith(
        f"{prices.symbols[fallen]}, which had gained {gains[fallen] - 1:.0%} in 252 sessions"
    )
    assert 1 + panel.close_returns[shock, fallen] == pytest.approx(1e-6, rel=1e-9)
    assert 1 + panel.overnight_returns[shock, fallen] == pytest.approx(1e-6, rel=1e-9)
    assert panel.tradable[: shock + 1, fallen].all()
    assert not panel.tradable[shock + 1 :, fallen].any()
    assert panel.delisted[-1].tolist() == [name == fallen for name in range(4)]
    others, unstressed = np.arange(4) != fallen, unstressed_market(prices).unstressed().panel
    np.testing.assert_array_equal(panel.close_returns[:, others], unstressed.close_returns[:, others])


def test_tied_past_winners_first_symbol_falls():
    panel, shock = played(OneNameToZero(), unstressed_market(still()))
    assert panel.close_returns[shock].tolist() == [pytest.approx(-1 + 1e-6), 0.0, 0.0, 0.0]


@pytest.mark.parametrize(("n_symbols", "lookback"), [(1, 252), (2, 800)])
def test_one_name_to_zero_needs_two_names_and_a_long_enough_past(n_symbols, lookback):
    with pytest.raises(
        ScenarioUnavailableError, match=f"the highest return over {lookback} sessions before .* needs two names"
    ):
        played(OneNameToZero(lookback=lookback), unstressed_market(random_walks(n_symbols)))


def test_correlation_to_one_keeps_each_mean_and_volatility():
    market = unstressed_market()
    panel, shock = played(CorrelationToOne(n_sessions=LENGTH), market)
    unstressed, stressed = (logs(each, shock, LENGTH) for each in (market.unstressed().panel, panel))
    assert np.corrcoef(stressed.T).min() == pytest.approx(1.0, abs=1e-12)
    assert np.corrcoef(unstressed.T).min() < 0.5
    np.testing.assert_allclose(stressed.mean(axis=0), unstressed.mean(axis=0), atol=1e-15)
    np.testing.assert_allclose(stressed.std(axis=0), unstressed.std(axis=0), rtol=1e-12)
    day = np.log1p(panel.close_returns) - np.log1p(panel.overnight_returns)
    unstressed_day = np.log1p(market.unstressed().panel.close_returns) - np.log1p(
        market.unstressed().panel.overnight_returns
    )
    np.testing.assert_allclose(day, unstressed_day, atol=1e-14)


def test_prices_are_back_after_a_stretch():
    market = unstressed_market()
    for stress in (CorrelationToOne(n_sessions=LENGTH), VolatilityTimes(n_sessions=LENGTH)):
        panel, shock = played(stress, market)
        after, unstressed = shock + LENGTH, market.unstressed().panel
        np.testing.assert_allclose(panel.close_returns[after:], unstressed.close_returns[after:], rtol=1e-9, atol=1e-14)
        growth, was = (np.prod(1 + each.close_returns[shock:after], axis=0) for each in (panel, unstressed))
        np.testing.assert_allclose(growth, was, rtol=1e-12)


def test_correlation_to_one_with_constant_name_and_missing_bar():
    prices = random_walks()
    prices.closes[:, 0] = prices.opens[:, 0] = 50.0
    prices = prices.without(SHOCK + 3, SHOCK + 4, np.array([False, True, False, False]))
    panel, shock = played(CorrelationToOne(n_sessions=LENGTH), unstressed_market(prices))
    stressed = logs(panel, shock, LENGTH)
    np.testing.assert_array_equal(stressed[:, 0], 0.0)
    there = np.arange(LENGTH) != 3
    assert np.corrcoef(stressed[there, 1:].T).min() == pytest.approx(1.0, abs=1e-12)


def test_correlation_to_one_of_constant_names_is_unavailable():
    with pytest.raises(ScenarioUnavailableError, match="no name moves in the 42 sessions"):
        played(CorrelationToOne(n_sessions=LENGTH), unstressed_market(still()))


def test_few_known_opens_keep_their_overnight_returns():
    prices = random_walks()
    known = [SHOCK + 2, SHOCK + 9]
    prices.opens[np.setdiff1d(np.arange(N_SESSIONS), known), 0] = np.nan
    market = unstressed_market(prices)
    panel, shock = played(VolatilityTimes(n_sessions=LENGTH), market)
    at = [shock + 2, shock + 9]
    nights = [each.overnight_returns[at, 0] for each in (market.unstressed().panel, panel)]
    np.testing.assert_allclose(nights[1], nights[0], rtol=1e-9)
    assert not np.isclose(panel.overnight_returns[at, 0], panel.close_returns[at, 0]).any()


@pytest.mark.slow
@settings(max_examples=10)
@given(factor=st.floats(1.01, 10.0), seed=st.integers(0, 3))
def test_volatility_is_multiplied_around_the_mean_overnight_and_intraday(factor, seed):
    market = unstressed_market(random_walks(2, seed))
    panel, shock = played(VolatilityTimes(factor=factor, n_sessions=LENGTH), market)
    unstressed, stressed = (logs(each, shock, LENGTH) for each in (market.unstressed().panel, panel))
    np.testing.assert_allclose(
        stressed - unstressed.mean(axis=0), factor * (unstressed - unstressed.mean(axis=0)), atol=1e-12
    )
    nights = [np.log1p(each.overnight_returns[shock : shock + LENGTH]) for each in (market.unstressed().panel, panel)]
    np.testing.assert_allclose(nights[1].std(axis=0), factor * nights[0].std(axis=0), rtol=1e-9)
    assert (panel.close_returns > -1.0).all()


@pytest.mark.parametrize(("share", "n_missing"), [(1.0, 4), (0.5, 2), (0.1, 1)])
def test_missing_data_resumes_with_the_original_prices(share, n_missing):
    market = unstressed_market()
    panel, shock = played(MissingData(n_sessions=5, share=share), market)
    gone = ~panel.tradable[shock]
    assert gone.sum() == n_missing
    assert not panel.tradable[shock : shock + 5, gone].any()
    assert panel.tradable[:, ~gone].all()
    assert panel.tradable[shock + 5 :].all()
    unstressed = market.unstressed().panel.close_returns[shock : shock + 6, gone]
    np.testing.assert_allclose(1 + panel.close_returns[shock + 5, gone], np.prod(1 + unstressed, axis=0), rtol=1e-14)


def test_missing_data_beyond_max_gap_is_unavailable():
    with pytest.raises(ScenarioUnavailableError, match=r"a gap of 6 sessions .* exceeds max_gap \(5\)"):
        played(MissingData(n_sessions=6), unstressed_market())
    panel, shock = played(MissingData(n_sessions=6), unstressed_market(max_gap=6))
    assert not panel.tradable[shock : shock + 6].any()


@pytest.mark.parametrize("own", [SHOCK + 5, SHOCK - 1])
def test_name_whose_gap_would_exceed_max_gap_is_excluded(own):
    prices = random_walks().without(own, own + 1, np.arange(4) == 2)
    (stressed,) = MissingData().apply(unstressed_market(prices), GENERATOR)
    assert stressed.panel.tradable[stressed.shock].tolist() == [False, False, True, False]
    assert stressed.note.startswith("3 of 4 names; never CCC, whose gap would be too long; ")
    (bearing,) = MissingData().apply(unstressed_market(prices, max_gap=6), GENERATOR)
    assert not bearing.panel.tradable[bearing.shock].any()


def test_names_without_a_bar_are_not_counted_as_missing():
    prices = random_walks().without(FIRST - 30, N_SESSIONS, np.arange(4) >= 2)
    for seed in range(4):
        (stressed,) = MissingData(share=0.5).apply(unstressed_market(prices), np.random.default_rng(seed))
        assert stressed.panel.tradable[stressed.shock].sum() == 1
        assert stressed.note.startswith("1 of 2 names; ")


def test_note_says_when_missing_names_are_eligible_again():
    (stressed,) = MissingData().apply(unstressed_market(), GENERATOR)
    all_of_them = stressed.panel.eligible.all(axis=1)
    until = stressed.panel.index_of(np.datetime64(stressed.note[-10:]))
    assert all_of_them[until]
    assert not all_of_them[stressed.shock : until].any()
    assert until - stressed.shock > 20
    (late,) = MissingData(at=0.9).apply(unstressed_market(), GENERATOR)
    assert late.note.endswith("not all of them eligible again in the window")


def test_missing_data_excluding_every_name_is_unavailable():
    prices = random_walks().without(SHOCK + 5, SHOCK + 7, np.ones(4, dtype=bool))
    with pytest.raises(ScenarioUnavailableError, match="exceeds max_gap"):
        played(MissingData(), unstressed_market(prices))


def test_only_chosen_names_are_shocked():
    prices = random_walks(4)
    market = unstressed_market(prices)
    lengths, choice = (market.n_sessions, market.n_before), PanelChoice(("AAA", "BBB"))
    few = type(market).of(prices.rows(), market.out_of_sample, lengths, choice)
    assert few.panel.symbols == ("AAA", "BBB")
    (fallen,) = OneNameToZero().apply(few, GENERATOR)
    assert fallen.note[:3] in few.panel.symbols
    (missing,) = MissingData(share=0.5).apply(few, GENERATOR)
    assert (~missing.panel.tradable[missing.shock]).sum() == 1
    assert missing.note.startswith("1 of 2 names; ")


@pytest.mark.parametrize("stress", [Gap(at=0.0), Gap(at=0.999), FlashCrash(at=0.0), OneNameToZero(at=0.0)])
def test_shock_starts_at_its_share_of_the_window(stress):
    panel, shock = played(stress, unstressed_market())
    assert panel.sessions[shock] == random_walks().sessions[FIRST if stress.at == 0.0 else N_SESSIONS - 1]
