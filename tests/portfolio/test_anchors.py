from dataclasses import replace

import numpy as np
import pytest
from pydantic import ValidationError

from nvtrader_pipelines.portfolio.anchors import (
    EqualWeightAnchor,
    VolatilityTargetAnchor,
    equal_weight_returns,
    equal_weights,
    fill_with_cash,
    market_returns,
    trailing_windows,
)
from tests.markets import synthetic_panel
from tests.panels import eventful_panel


def test_market_return_is_the_mean_of_tradable_names():
    panel = eventful_panel()
    expected = [panel.close_returns[t, panel.tradable[t]].mean() for t in range(len(panel.sessions))]
    np.testing.assert_allclose(market_returns(panel), expected, rtol=1e-12)


def test_market_return_without_tradable_names_is_zero():
    panel = replace(synthetic_panel(10, 3), tradable=np.zeros((10, 3), dtype=bool))
    assert not market_returns(panel).any()


def test_trailing_windows_are_padded_with_the_first_value():
    assert trailing_windows(np.array([1.0, 2.0, 3.0, 4.0]), 3).tolist() == [[1, 1, 1], [1, 1, 2], [1, 2, 3], [2, 3, 4]]


def test_equal_weights_without_eligible_names_are_cash():
    panel = eventful_panel()
    weights = equal_weights(panel)
    for t in (0, 31, 45, 60, 100):
        eligible = panel.eligible[t]
        np.testing.assert_allclose(weights[t, :-1], eligible / eligible.sum(), rtol=1e-15)
    nothing = equal_weights(replace(panel, eligible=np.zeros_like(panel.eligible)))
    assert (nothing[:, -1] == 1.0).all()
    assert not nothing[:, :-1].any()


@pytest.mark.parametrize("anchor", [EqualWeightAnchor(), VolatilityTargetAnchor(volatility=100.0)])
def test_cash_of_a_fully_invested_anchor_is_not_negative(anchor):
    for n_symbols in range(1, 64):
        weights = anchor.weights(synthetic_panel(3, n_symbols))
        assert (weights >= 0.0).all()
        np.testing.assert_allclose(weights.sum(axis=1), 1.0, atol=1e-15)


def test_volatility_target_never_raises_exposure():
    panel = synthetic_panel(120, 5)
    market = equal_weight_returns(panel)
    exposure = VolatilityTargetAnchor(volatility=0.08, window=21).weights(panel)[:, :-1].sum(axis=1)
    realised = [market[t - 20 : t + 1].std(ddof=1) * np.sqrt(252) for t in range(20, 120)]
    np.testing.assert_allclose(exposure[20:], np.minimum(1.0, 0.08 / np.array(realised)), rtol=1e-12)
    assert 0.0 < exposure[20:].min() < exposure[20:].max() <= 1.0 + 1e-12


def test_volatility_target_is_of_the_returns_that_equal_weights_earn():
    panel = eventful_panel()
    held = equal_weights(panel)[:-1, :-1]
    earned = (held * panel.close_returns[1:]).sum(axis=1)
    np.testing.assert_allclose(equal_weight_returns(panel)[1:], earned, atol=1e-15)
    assert np.abs(earned - market_returns(panel)[1:]).max() > 1e-3
    wild = replace(panel, close_returns=np.where(panel.eligible.any(axis=0), panel.close_returns, 9.0))
    anchor = VolatilityTargetAnchor(volatility=0.05, window=5)
    np.testing.assert_array_equal(anchor.weights(wild), anchor.weights(panel))


def test_volatility_window_below_two_is_refused():
    with pytest.raises(ValidationError):
        VolatilityTargetAnchor(window=1)


def test_cash_completes_the_sum_and_is_not_negative():
    weights = fill_with_cash(np.array([[0.3, 0.3, 9.0], [0.7, 0.3 + 1e-15, 9.0]]))
    np.testing.assert_allclose(weights[:, -1], [0.4, 0.0], atol=1e-15)
    assert (weights >= 0.0).all()
