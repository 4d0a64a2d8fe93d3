import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nvtrader_pipelines.portfolio.anchors import VolatilityTargetAnchor, equal_weights
from nvtrader_pipelines.portfolio.pipeline import RiskLimits, WeightPipeline
from nvtrader_pipelines.portfolio.pipeline.timings import VolatilityTargetTiming
from tests.contracts.families import simplex
from tests.markets import synthetic_panel
from tests.panels import cut
from tests.portfolio.pipeline.situations import cash, situation, stage

PANEL = synthetic_panel(160, 4)


def apply_timing(timing, proposal, t=100, panel=PANEL):
    pipeline = WeightPipeline(timing=timing, risk_limits=RiskLimits(max_position=1.0))
    return stage(pipeline, timing.kind, proposal, situation(panel, t))


@given(
    seed=st.integers(0, 2**32 - 1), t=st.integers(30, 159), window=st.integers(2, 30), volatility=st.floats(0.01, 0.5)
)
def test_volatility_target_scales_by_the_weights_own_volatility(seed, t, window, volatility):
    (proposal,) = simplex(np.random.default_rng(seed), 1, 4)
    earned = [sum(w * r for w, r in zip(proposal, PANEL.close_returns[s], strict=False)) for s in range(t + 1)][
        -window:
    ]
    mean = sum(earned) / window
    realized = (252 * sum((each - mean) ** 2 for each in earned) / (window - 1)) ** 0.5
    found = apply_timing(VolatilityTargetTiming(volatility=volatility, window=window), proposal, t).weights
    np.testing.assert_allclose(found[:-1], min(1.0, volatility / realized) * proposal[:-1], atol=1e-12)
    assert found.sum() == pytest.approx(1.0, abs=1e-12)


def test_volatility_target_of_equal_weights_is_its_anchor():
    anchored, equal = VolatilityTargetAnchor(volatility=0.05).weights(PANEL), equal_weights(PANEL)
    timing = VolatilityTargetTiming(volatility=0.05)
    for t in (0, 1, 5, 20, 21, 159):  # the first with a padded window
        np.testing.assert_allclose(apply_timing(timing, equal[t], t).weights, anchored[t], atol=1e-12)


def test_volatility_target_gives_its_figures_as_the_reason():
    proposal = np.array([1.0, 0.0, 0.0, 0.0, 0.0])
    realized = PANEL.close_returns[80:101, 0].std(ddof=1) * 252**0.5
    found = apply_timing(VolatilityTargetTiming(volatility=realized / 2.0), proposal)
    assert found.reason == f"volatility of {realized:.1%}, above {realized / 2.0:.1%}: 50% of the weights"
    assert apply_timing(VolatilityTargetTiming(volatility=realized * 1.001), proposal).reason == ""
    assert apply_timing(VolatilityTargetTiming(), cash(4)).reason == ""


def test_volatility_target_needs_a_market_as_long_as_its_window():
    timing = VolatilityTargetTiming(window=41)
    assert timing.lookback == WeightPipeline(timing=timing).lookback == 41
    assert timing.start(cut(PANEL, 40))
    with pytest.raises(ValueError):
        timing.start(cut(PANEL, 39))
