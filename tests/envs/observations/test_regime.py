from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import linregress

from nvtrader_pipelines.envs.observations import LookbackObservation, ObservationScaler, RegimeObservation
from nvtrader_pipelines.envs.observations.builder import CLIP, AccountView
from nvtrader_pipelines.envs.observations.regime_builder import trailing_slopes
from nvtrader_pipelines.envs.simulation import fit_scaler
from nvtrader_pipelines.portfolio.anchors import market_returns
from tests.markets import synthetic_panel, with_values
from tests.panels import cut, eventful_panel, with_other_future

PANEL, LOOKBACK, OBSERVATION = synthetic_panel(300, 4), 7, RegimeObservation()
WINDOW, N_REGIMES = OBSERVATION.window, OBSERVATION.n_regimes
T = np.arange(300)


def rows_of(panel, scaler, observation=OBSERVATION, t=T):
    view = AccountView(np.tile([0.1, 0.2, 0.3, 0.0, 0.4], (len(t), 1)), np.full(len(t), 0.05))
    return observation.start(panel, scaler, LOOKBACK).observe(t, view)


def regime_part(rows):
    """Scaled slope and one-hot regimes: the columns before weights of four names, cash and drawdown."""
    return rows[:, -1 - 5 - 1 - N_REGIMES : -5 - 1]


def test_trailing_slope_is_of_a_line_through_log_levels():
    levels = np.cumsum(np.log1p(market_returns(PANEL)))
    for t in (WINDOW - 1, 100, 299):
        expected = linregress(np.arange(WINDOW), levels[t - WINDOW + 1 : t + 1]).slope
        assert trailing_slopes(PANEL, WINDOW)[t] == pytest.approx(expected, rel=1e-9)


def test_regime_columns_precede_the_account_columns():
    scaler = OBSERVATION.fit(PANEL, 0, 200)
    rows, plain = (
        rows_of(PANEL, scaler),
        rows_of(PANEL, LookbackObservation().fit(PANEL, 0, 200), LookbackObservation()),
    )
    assert rows.shape[1] == plain.shape[1] + 1 + N_REGIMES
    np.testing.assert_array_equal(rows[:, : plain.shape[1] - 6], plain[:, :-6])
    np.testing.assert_array_equal(rows[:, -6:], plain[:, -6:])


def test_regimes_are_equally_frequent_in_training():
    scaler = OBSERVATION.fit(PANEL, 0, 200)
    assert list(scaler.cuts) == sorted(scaler.cuts)
    assert len(scaler.cuts) == N_REGIMES - 1
    part = regime_part(rows_of(PANEL, scaler))
    assert (part[:, 1:].sum(axis=1) == 1.0).all()
    counts = part[WINDOW - 1 : 201, 1:].sum(axis=0)
    assert counts.max() - counts.min() <= 1
    steepest_fall, steepest_rise = part[:, 0].argmin(), part[:, 0].argmax()
    assert (part[steepest_fall, 1], part[steepest_rise, -1]) == (1.0, 1.0)
    assert np.abs(part[:, 0]).max() <= CLIP


def test_cuts_depend_on_the_training_alone():
    scaler = OBSERVATION.fit(PANEL, 100, 200)
    for session in (50, 99, 201, 250):
        returns = PANEL.close_returns.copy()
        returns[session] += 0.3
        other = OBSERVATION.fit(replace(PANEL, close_returns=returns), 100, 200)
        assert other.cuts == scaler.cuts
        assert (other.means[-1], other.deviations[-1]) == (scaler.means[-1], scaler.deviations[-1])


@pytest.mark.parametrize("t", [0, 40, 120])
def test_regimes_and_slopes_do_not_look_ahead(t):
    panel, scaler = eventful_panel(), OBSERVATION.fit(eventful_panel(), 0, 99)
    known = trailing_slopes(panel, WINDOW)[: t + 1]
    for other in (with_other_future(panel, t), cut(panel, t)):
        np.testing.assert_array_equal(trailing_slopes(other, WINDOW)[: t + 1], known)
    assert scaler.cuts == OBSERVATION.fit(with_other_future(panel, 99), 0, 99).cuts


def test_training_shorter_than_the_slopes_window_is_refused():
    with pytest.raises(ValueError):
        OBSERVATION.fit(PANEL, 10, 29)


def test_empty_scaler_gives_raw_slope_and_one_regime():
    part = regime_part(rows_of(PANEL, ObservationScaler()))
    np.testing.assert_allclose(part[:, 0], trailing_slopes(PANEL, WINDOW), rtol=1e-6)
    assert (part[:, 1:] == np.eye(N_REGIMES)[0]).all()


def test_cuts_do_not_depend_on_sessions_between_stretches():
    stretches = ((20, 99), (150, 249))
    scaler = fit_scaler(PANEL, OBSERVATION, stretches)
    between, within = (
        with_values(PANEL, "close_returns", rows, PANEL.close_returns[rows] + 0.3) for rows in ([5, 120, 280], [60])
    )
    assert fit_scaler(between, OBSERVATION, stretches) == scaler
    assert fit_scaler(within, OBSERVATION, stretches).cuts != scaler.cuts
