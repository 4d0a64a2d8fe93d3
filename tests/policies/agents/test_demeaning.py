import numpy as np

from nvtrader_pipelines.policies.agents.demeaning import demean_panel
from tests.markets import with_values
from tests.panels import LATE, NEVER, eventful_panel


def test_demeaning_sets_the_common_mean_and_keeps_deviations():
    panel = eventful_panel()
    first, last = 10, 140
    shifted = demean_panel(panel, [(first, last)])
    listed = panel.tradable[first : last + 1]
    growth, before = (np.log1p(market.close_returns[first : last + 1]) for market in (shifted, panel))
    own = [growth[listed[:, name], name].mean() for name in range(6) if name != NEVER]
    np.testing.assert_allclose(own, own[0], atol=1e-15)
    moved = (growth - before)[listed[:, LATE], LATE]
    np.testing.assert_allclose(moved, moved[0], atol=1e-15)


def test_demeaning_leaves_missing_prices_and_the_input_panel_unchanged():
    panel = eventful_panel()
    before = panel.close_returns.copy()
    shifted = demean_panel(panel, [(10, 140)])
    assert not shifted.close_returns[~panel.tradable].any()
    np.testing.assert_array_equal(panel.close_returns, before)


def test_demeaned_closes_are_between_high_and_low():
    shifted = demean_panel(eventful_panel(), [(10, 140)])
    assert (shifted.high_returns >= shifted.close_returns).all()
    assert (shifted.low_returns <= shifted.close_returns).all()


def test_demeaning_ignores_sessions_between_stretches():
    panel = eventful_panel()
    stretches = [(10, 60), (100, 140)]
    between = with_values(panel, "close_returns", np.s_[61:100], 0.5 * panel.close_returns[61:100])
    shifted, other = (demean_panel(market, stretches).close_returns for market in (panel, between))
    inside = np.r_[10:61, 100:141]
    np.testing.assert_array_equal(shifted[inside], other[inside])
    growth = np.log1p(shifted[inside])
    own = [growth[panel.tradable[inside][:, name], name].mean() for name in range(6) if name != NEVER]
    np.testing.assert_allclose(own, own[0], atol=1e-15)
