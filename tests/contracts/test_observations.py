import numpy as np
import pytest

from nvtrader_pipelines.envs.observations import ObservationScaler
from nvtrader_pipelines.envs.observations.builder import AccountView
from tests.contracts.families import defaults, simplex
from tests.panels import cut, eventful_panel, with_other_future

PANEL, LOOKBACK = eventful_panel(), 7
OBSERVATIONS = pytest.mark.parametrize("observation", defaults("observation"), ids=lambda observation: observation.kind)


def accounts(n):
    generator = np.random.default_rng(0)
    return AccountView(simplex(generator, n, 6), generator.uniform(0.0, 0.9, n))


def rows_of(observation, panel, scaler, t):
    return observation.start(panel, scaler, LOOKBACK).observe(t, accounts(len(t)))


@OBSERVATIONS
def test_observations_are_finite_float32_of_the_stated_length(observation):
    t = np.arange(len(PANEL.sessions))
    scaler = observation.fit(PANEL, 0, 99)
    rows = rows_of(observation, PANEL, scaler, t)
    assert rows.dtype == np.float32
    assert rows.shape == (len(t), observation.start(PANEL, scaler, LOOKBACK).length)
    assert np.isfinite(rows).all()


@OBSERVATIONS
def test_account_changes_only_its_own_columns(observation):
    builder = observation.start(PANEL, ObservationScaler(), LOOKBACK)
    t = np.array([80])
    cash, invested = np.eye(7)[[6]], np.eye(7)[[0]]
    first = builder.observe(t, AccountView(cash, np.zeros(1)))
    builder.observe(np.array([90]), AccountView(invested, np.ones(1)))
    again = builder.observe(t, AccountView(cash, np.zeros(1)))
    np.testing.assert_array_equal(first, again)
    assert 0 < (builder.observe(t, AccountView(invested, np.zeros(1))) != first).sum() <= 7


@OBSERVATIONS
def test_observations_of_many_accounts_equal_single_ones(observation):
    builder = observation.start(PANEL, observation.fit(PANEL, 0, 99), LOOKBACK)
    view, t = accounts(9), np.array([0, 3, 31, 45, 45, 61, 80, 100, 159])
    together = builder.observe(t, view)
    for i in range(9):
        alone = builder.observe(t[i : i + 1], AccountView(view.weights[i : i + 1], view.drawdown[i : i + 1]))
        np.testing.assert_array_equal(together[i], alone[0])


@OBSERVATIONS
@pytest.mark.parametrize("t", [0, 31, 49, 63, 110])
def test_observations_do_not_look_ahead(observation, t):
    scaler = observation.fit(PANEL, 0, 30)
    known = rows_of(observation, PANEL, scaler, np.arange(t + 1))
    for other in (with_other_future(PANEL, t), cut(PANEL, t)):
        np.testing.assert_array_equal(rows_of(observation, other, scaler, np.arange(t + 1)), known)


@OBSERVATIONS
def test_scaler_does_not_look_beyond_the_training_window(observation):
    known = observation.fit(PANEL, 10, 63)
    assert observation.fit(with_other_future(PANEL, 63), 10, 63) == known
    assert observation.fit(cut(PANEL, 63), 10, 63) == known


@OBSERVATIONS
def test_scaler_survives_json(observation):
    scaler = observation.fit(PANEL, 0, 99)
    assert ObservationScaler.model_validate_json(scaler.model_dump_json()) == scaler


@OBSERVATIONS
@pytest.mark.parametrize("t", [-1, 160])
def test_session_beyond_the_panel_is_refused(observation, t):
    builder = observation.start(PANEL, observation.fit(PANEL, 0, 99), LOOKBACK)
    with pytest.raises(IndexError, match=rf"0\.\.159.*{t}"):
        builder.observe(np.array([80, t]), accounts(2))


@OBSERVATIONS
def test_earlier_observations_are_not_overwritten(observation):
    builder = observation.start(PANEL, observation.fit(PANEL, 0, 99), LOOKBACK)
    first = builder.observe(np.array([80, 90]), accounts(2))
    before = first.copy()
    builder.observe(np.array([81, 91]), accounts(2))
    np.testing.assert_array_equal(first, before)
