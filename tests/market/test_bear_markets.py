import numpy as np

from nvtrader_pipelines.market.bear_markets import bear_market_sessions


def test_bear_market_begins_20_percent_below_high_and_ends_20_above_low():
    levels = np.array([100.0, 120.0, 97.0, 96.0, 110.0, 80.0, 95.0, 96.0, 130.0, 105.0, 104.0])
    found = bear_market_sessions(levels)
    assert found.tolist() == [False, False, False, True, True, True, True, False, False, False, True]


def test_state_of_a_session_depends_on_levels_up_to_it_alone():
    levels = np.exp(np.random.default_rng(0).normal(0.0, 0.03, 400).cumsum())
    whole = bear_market_sessions(levels)
    assert 2 < (whole[1:] != whole[:-1]).sum() < 40
    for n in range(1, len(levels), 7):
        np.testing.assert_array_equal(bear_market_sessions(levels[:n]), whole[:n])
