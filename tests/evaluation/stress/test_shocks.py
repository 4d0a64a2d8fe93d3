import numpy as np
import pytest

from nvtrader_pipelines.evaluation.stress import FlashCrash, Gap
from tests.evaluation.stress.markets import FIRST, N_SESSIONS, SHOCK, random_walks, still, unstressed_market, without


def played(stress, market):
    """The only stressed market of a scenario, and the session of its shock."""
    (stressed,) = stress.apply(market, np.random.default_rng(0))
    return stressed.panel, stressed.shock


def test_gap_cuts_every_price_once_overnight():
    panel, shock = played(Gap(loss=0.2), unstressed_market(still()))
    assert panel.sessions[shock] == still().sessions[SHOCK]
    np.testing.assert_allclose(panel.overnight_returns[shock], -0.2, rtol=1e-15)
    np.testing.assert_allclose(panel.close_returns[shock], -0.2, rtol=1e-15)
    assert np.count_nonzero(panel.close_returns) == np.count_nonzero(panel.overnight_returns) == 4


@pytest.mark.slow
def test_gap_without_opens_is_in_the_close():
    panel, shock = played(Gap(loss=0.2), unstressed_market(random_walks(opens=False)))
    unstressed = unstressed_market(random_walks(opens=False)).unstressed().panel
    assert panel.overnight_returns is None
    np.testing.assert_allclose(1 + panel.close_returns[shock], 0.8 * (1 + unstressed.close_returns[shock]), rtol=1e-14)


@pytest.mark.slow
def test_gap_of_name_without_bar_is_in_its_next_price():
    prices = without(random_walks(), SHOCK, SHOCK + 2, np.array([True, False, False, False]))
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


@pytest.mark.parametrize("stress", [Gap(at=0.0), Gap(at=0.999), FlashCrash(at=0.0)])
def test_shock_starts_at_its_share_of_the_window(stress):
    panel, shock = played(stress, unstressed_market())
    assert panel.sessions[shock] == random_walks().sessions[FIRST if stress.at == 0.0 else N_SESSIONS - 1]
