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


def shocked():
    """A market in which every name loses a tenth in one session."""
    returns = PANEL.close_returns.copy()
    returns[SHOCK] = -0.1
    return replace(PANEL, close_returns=returns)


def timed(timing, panel, t, thresholds=None):
    """The weights and the reason after the timing."""
    at = situation(panel, t, thresholds=thresholds or Thresholds())
    return stage(WeightPipeline(timing=timing), "turbulence", PROPOSAL, at)


@pytest.mark.parametrize(("t", "history"), [(60, 60), (150, 100), (199, 20)])
def test_the_index_is_scipys_squared_mahalanobis_distance_from_the_sessions_before(t, history):
    past = PANEL.close_returns[t - history : t]
    precision = np.linalg.inv(np.cov(past, rowvar=False))
    expected = mahalanobis(PANEL.close_returns[t], past.mean(axis=0), precision) ** 2
    assert turbulence_index(PANEL, t, history) == pytest.approx(expected, rel=1e-10)


def test_of_one_name_the_index_is_its_squared_standard_score():
    one = synthetic_panel(100, 1)
    past = one.close_returns[40:99, 0]
    expected = ((one.close_returns[99, 0] - past.mean()) / past.std(ddof=1)) ** 2
    assert turbulence_index(one, 99, 59) == pytest.approx(expected, rel=1e-10)


def test_names_that_are_the_same_count_once():
    twice = replace(PANEL, close_returns=PANEL.close_returns[:, [0, 1, 1]])
    once = replace(
        PANEL, close_returns=PANEL.close_returns[:, :2], tradable=PANEL.tradable[:, :2], symbols=PANEL.symbols[:2]
    )
    assert turbulence_index(twice, 120, 60) == pytest.approx(turbulence_index(once, 120, 60), rel=1e-8)


def test_counted_are_names_with_a_price_that_were_listed_when_the_history_began():
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


def test_there_is_no_index_without_the_history_and_so_no_scaling():
    assert turbulence_index(PANEL, 59, 60) is None
    assert turbulence_index(PANEL, 60, 60) is not None
    assert timed(TurbulenceTiming(threshold=1e-9, history=60), PANEL, 59).reason == ""
    assert timed(TurbulenceTiming(threshold=1e-9, history=60), PANEL, 60).reason


def test_a_turbulent_session_and_those_of_the_cooldown_keep_the_scale():
    timing = TurbulenceTiming(threshold=100.0, history=60, cooldown=3, cooldown_scale=0.25)
    panel = shocked()
    changed = [t for t in range(140, 170) if timed(timing, panel, t).reason]
    assert changed == [SHOCK, SHOCK + 1, SHOCK + 2, SHOCK + 3]
    found = timed(timing, panel, SHOCK + 2)
    np.testing.assert_allclose(found.weights, [0.05, 0.05, 0.05, 0.85])
    assert found.reason.endswith(f"on {panel.sessions[SHOCK]}, above 100.0: 25% of the weights")


def test_by_default_a_turbulent_session_is_spent_in_cash():
    found = timed(TurbulenceTiming(history=60), shocked(), SHOCK)
    np.testing.assert_array_equal(found.weights, cash(3))


def test_the_fitted_threshold_is_the_quantile_of_the_training_sessions_index():
    timing = TurbulenceTiming(threshold=None, history=40, quantile=0.8)
    windows = [(20, 90), (120, 130)]
    index = [turbulence_index(PANEL, t, 40) for t in [*range(40, 91), *range(120, 131)]]
    fitted = timing.fit(PANEL, windows, [])
    assert timing.needs_fit
    assert not timing.needs_path
    assert fitted == Thresholds(turbulence=float(np.quantile(index, 0.8)))
    scaled = [bool(timed(timing, PANEL, t, fitted).reason) for t in range(40, 91)]
    assert scaled == [value > fitted.turbulence for value in index[:51]]


def test_what_comes_after_the_training_does_not_change_the_threshold():
    timing = TurbulenceTiming(threshold=None, history=40)
    assert timing.fit(shocked(), [(20, SHOCK - 1)], []) == timing.fit(PANEL, [(20, SHOCK - 1)], [])
    assert timing.fit(shocked(), [(20, SHOCK)], []) != timing.fit(PANEL, [(20, SHOCK)], [])


def test_a_given_threshold_is_not_fitted():
    assert not TurbulenceTiming().needs_fit
    assert TurbulenceTiming().fit(PANEL, [(0, 100)], []) == Thresholds()


def test_a_training_without_history_fits_no_threshold():
    timing, said = TurbulenceTiming(threshold=None), "252 sessions before them .* of the 101 to fit on none has as many"
    for refuses in (lambda: timing.fit(PANEL, [(0, 100)], []), lambda: timing.require_sessions(PANEL, [(0, 100)], 5)):
        with pytest.raises(ValueError, match=said):
            refuses()
    assert TurbulenceTiming(threshold=None, history=100).require_sessions(PANEL, [(0, 100)], 5) is None
    assert TurbulenceTiming().require_sessions(PANEL, [(0, 100)], 5) is None


def test_a_threshold_that_was_not_fitted_is_missed():
    with pytest.raises(ValueError, match="needs the fitted one"):
        timed(TurbulenceTiming(threshold=None, history=40), PANEL, 100)


def test_a_history_no_longer_than_the_names_is_refused():
    with pytest.raises(ValueError, match="history is 20 and the market has 20 names"):
        TurbulenceTiming(history=20).start(synthetic_panel(60, 20))
