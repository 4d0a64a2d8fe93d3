from dataclasses import replace

import numpy as np
import pytest
from scipy.spatial.distance import mahalanobis

from nvtrader_pipelines.portfolio.pipeline import Thresholds, WeightPipeline
from nvtrader_pipelines.portfolio.pipeline.turbulence import TurbulenceTiming, turbulence_index
from tests.markets import synthetic_panel
from tests.panels import DELISTED, GAP, GAPPY, LAST_PRICE, LATE, LISTED_AT, NEVER, STEADY, eventful_panel
from tests.portfolio.pipeline.situations import cash, situation, stage

PANEL = synthetic_panel(200, 3, seed=2)
PROPOSAL = [0.2, 0.2, 0.2, 0.4]
SHOCK = 150


def shocked_market():
    """Build a market in which every name loses 10 % in one session."""
    returns = PANEL.close_returns.copy()
    returns[SHOCK] = -0.1
    return replace(PANEL, close_returns=returns)


def apply_timing(timing, panel, t, thresholds=None):
    """Return the timing's stage."""
    at = situation(panel, t, thresholds=thresholds or Thresholds())
    return stage(WeightPipeline(timing=timing), "turbulence", PROPOSAL, at)


@pytest.mark.parametrize(("t", "history"), [(60, 60), (150, 100), (199, 20)])
def test_turbulence_is_scipys_squared_mahalanobis_distance(t, history):
    past = PANEL.close_returns[t - history : t]
    precision = np.linalg.inv(np.cov(past, rowvar=False))
    expected = mahalanobis(PANEL.close_returns[t], past.mean(axis=0), precision) ** 2
    assert turbulence_index(PANEL, t, history) == pytest.approx(expected, rel=1e-10)


def test_turbulence_of_one_name_is_its_squared_z_score():
    one = synthetic_panel(100, 1)
    past = one.close_returns[40:99, 0]
    expected = ((one.close_returns[99, 0] - past.mean()) / past.std(ddof=1)) ** 2
    assert turbulence_index(one, 99, 59) == pytest.approx(expected, rel=1e-10)


def test_identical_names_count_once():
    twice = replace(PANEL, close_returns=PANEL.close_returns[:, [0, 1, 1]])
    once = replace(
        PANEL, close_returns=PANEL.close_returns[:, :2], tradable=PANEL.tradable[:, :2], symbols=PANEL.symbols[:2]
    )
    assert turbulence_index(twice, 120, 60) == pytest.approx(turbulence_index(once, 120, 60), rel=1e-8)


def test_turbulence_counts_names_listed_throughout_the_history():
    panel = eventful_panel()

    def counts(name, t):
        other = panel.close_returns.copy()
        other[t, name] += 0.05
        return turbulence_index(panel, t, 20) != turbulence_index(replace(panel, close_returns=other), t, 20)

    assert counts(STEADY, 50)
    assert not counts(NEVER, 50)
    assert not counts(LATE, LISTED_AT + 19)
    assert counts(LATE, LISTED_AT + 20)
    assert not counts(GAPPY, GAP[0])
    assert not counts(DELISTED, LAST_PRICE + 1)


def test_weights_without_turbulence_history_are_not_scaled():
    assert turbulence_index(PANEL, 59, 60) is None
    assert turbulence_index(PANEL, 60, 60) is not None
    assert apply_timing(TurbulenceTiming(threshold=1e-9, history=60), PANEL, 59).reason == ""
    assert apply_timing(TurbulenceTiming(threshold=1e-9, history=60), PANEL, 60).reason


def test_weights_are_scaled_in_turbulence_and_cooldown():
    timing = TurbulenceTiming(threshold=100.0, history=60, cooldown=3, cooldown_scale=0.25)
    panel = shocked_market()
    changed = [t for t in range(140, 170) if apply_timing(timing, panel, t).reason]
    assert changed == [SHOCK, SHOCK + 1, SHOCK + 2, SHOCK + 3]
    found = apply_timing(timing, panel, SHOCK + 2)
    np.testing.assert_allclose(found.weights, [0.05, 0.05, 0.05, 0.85])
    assert found.reason.endswith(f"on {panel.sessions[SHOCK]}, above 100.0: 25% of the weights")


def test_default_turbulence_timing_moves_to_cash():
    found = apply_timing(TurbulenceTiming(history=60), shocked_market(), SHOCK)
    np.testing.assert_array_equal(found.weights, cash(3))


def test_fitted_turbulence_is_the_quantile_over_training_sessions():
    timing = TurbulenceTiming(threshold=None, history=40, quantile=0.8)
    windows = [(20, 90), (120, 130)]
    index = [turbulence_index(PANEL, t, 40) for t in [*range(40, 91), *range(120, 131)]]
    fitted = timing.fit(PANEL, windows, [])
    assert timing.needs_fit
    assert not timing.needs_path
    assert fitted == Thresholds(turbulence=float(np.quantile(index, 0.8)))
    scaled = [bool(apply_timing(timing, PANEL, t, fitted).reason) for t in range(40, 91)]
    assert scaled == [value > fitted.turbulence for value in index[:51]]


def test_fitted_turbulence_does_not_look_beyond_the_training():
    timing = TurbulenceTiming(threshold=None, history=40)
    assert timing.fit(shocked_market(), [(20, SHOCK - 1)], []) == timing.fit(PANEL, [(20, SHOCK - 1)], [])
    assert timing.fit(shocked_market(), [(20, SHOCK)], []) != timing.fit(PANEL, [(20, SHOCK)], [])


def test_threshold_that_is_set_is_not_fitted():
    assert not TurbulenceTiming().needs_fit
    assert TurbulenceTiming().fit(PANEL, [(0, 100)], []) == Thresholds()


def test_training_without_history_cannot_be_fitted():
    timing = TurbulenceTiming(threshold=None)
    for refuses in (lambda: timing.fit(PANEL, [(0, 100)], []), lambda: timing.require_sessions(PANEL, [(0, 100)], 5)):
        with pytest.raises(ValueError):
            refuses()
    assert TurbulenceTiming(threshold=None, history=100).require_sessions(PANEL, [(0, 100)], 5) is None
    assert TurbulenceTiming().require_sessions(PANEL, [(0, 100)], 5) is None


def test_threshold_neither_set_nor_fitted_is_refused():
    with pytest.raises(ValueError):
        apply_timing(TurbulenceTiming(threshold=None, history=40), PANEL, 100)


def test_history_not_longer_than_the_number_of_names_is_refused():
    with pytest.raises(ValueError):
        TurbulenceTiming(history=20).start(synthetic_panel(60, 20))
