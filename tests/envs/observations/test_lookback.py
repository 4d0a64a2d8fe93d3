from dataclasses import replace

import numpy as np
import pytest

from nvtrader_pipelines.envs.observations import LookbackObservation, ObservationScaler
from nvtrader_pipelines.envs.observations.builder import AccountView
from tests.panels import INELIGIBLE, LATE, NEVER, eventful_panel

LOOKBACK, N, F = 5, 6, 15


def account(n=1):
    weights = np.random.default_rng(0).dirichlet(np.ones(N + 1), n)
    return AccountView(weights, np.linspace(0.1, 0.2, n))


def parts(row):
    window = row[: LOOKBACK * N].reshape(LOOKBACK, N)
    features = row[LOOKBACK * N : LOOKBACK * N + N * F].reshape(N, F)
    return window, features, row[-N - 2 : -1], row[-1]


def test_lookback_has_returns_features_weights_and_drawdown():
    panel, view = eventful_panel(), account()
    scaler = LookbackObservation().fit(panel, 0, 99)
    (row,) = LookbackObservation().start(panel, scaler, LOOKBACK).observe(np.array([110]), view)
    window, features, weights, drawdown = parts(row)
    mean, deviation = scaler.means[0], scaler.deviations[0]
    expected = (np.log1p(panel.close_returns[106:111]) - mean) / deviation * panel.tradable[106:111]
    np.testing.assert_allclose(window, expected, rtol=1e-5, atol=1e-6)
    scaled = (panel.features[110] - np.array(scaler.means[1:])) / np.array(scaler.deviations[1:])
    np.testing.assert_allclose(features, scaled * panel.eligible[110][:, None], rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(weights, view.weights[0].astype(np.float32))
    assert drawdown == np.float32(0.1)
    assert row.dtype == np.float32


def test_returns_before_the_first_session_are_zero():
    panel = eventful_panel()
    builder = LookbackObservation().start(panel, ObservationScaler(), LOOKBACK)
    window, *_ = parts(builder.observe(np.array([1]), account())[0])
    assert not window[:3].any()
    np.testing.assert_allclose(window[3:], np.log1p(panel.close_returns[:2]), rtol=1e-5)


def test_ineligible_features_and_unpriced_returns_are_zero():
    panel = eventful_panel()
    scaler = LookbackObservation().fit(panel, 0, 99)
    window, features, *_ = parts(
        LookbackObservation().start(panel, scaler, LOOKBACK).observe(np.array([45]), account())[0]
    )
    assert not features[[INELIGIBLE, LATE, NEVER]].any()
    assert not window[:, NEVER].any()
    assert window[:, INELIGIBLE].all()


def test_scaler_is_fitted_on_eligible_names_in_the_window():
    panel = eventful_panel()
    scaler = LookbackObservation().fit(panel, 20, 80)
    eligible = panel.eligible[20:81]
    returns = np.log1p(panel.close_returns[20:81])[eligible]
    assert (scaler.means[0], scaler.deviations[0]) == pytest.approx((returns.mean(), returns.std()))
    seventh = panel.features[20:81, :, 7][eligible]
    assert (scaler.means[8], scaler.deviations[8]) == pytest.approx((seventh.mean(), seventh.std()))


def test_constant_feature_does_not_divide_by_zero():
    panel = eventful_panel()
    features = panel.features.copy()
    features[:, :, 0] = 3.0
    panel = replace(panel, features=features)
    scaler = LookbackObservation().fit(panel, 0, 99)
    row = LookbackObservation().start(panel, scaler, LOOKBACK).observe(np.array([50]), account())
    assert np.isfinite(row).all()


def test_window_without_eligible_names_cannot_be_fitted():
    panel = eventful_panel()
    panel = replace(panel, eligible=np.zeros_like(panel.eligible))
    with pytest.raises(ValueError):
        LookbackObservation().fit(panel, 0, 99)
