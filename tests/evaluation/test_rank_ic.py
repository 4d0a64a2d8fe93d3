"""Rank correlations with the returns after the next fill."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import spearmanr

from nvtrader_pipelines.evaluation.multiple_testing import adjusted_p_values
from nvtrader_pipelines.evaluation.rank_ic import HORIZON, MIN_SESSIONS, rank_ic, returns_after_fill, session_ics
from nvtrader_pipelines.market.features import Formula
from nvtrader_pipelines.market.history import PriceHistory
from tests.markets import synthetic_panel
from tests.panels import eventful_panel, with_other_future

N_SESSIONS, N_NAMES = 760, 12
RANDOM = [
    *(["neg", ["ts_sum", ["log1p", "close_return"], window]] for window in (2, 3, 5, 10, 21)),
    *(["ts_std", "close_return", window] for window in (5, 10, 21, 63)),
    *(["ts_corr", "close_return", "low_return", window] for window in (5, 10, 21, 63)),
    *(["ts_rank", "high_return", window] for window in (10, 21, 63)),
    *(["decay_linear", ["sub", "close_return", "overnight_return"], window] for window in (5, 10, 21)),
    ["rank", ["sub", "high_return", "low_return"]],
]
PLANTED = ["log1p", "volume_change"]


def noise(*shape, seed=0):
    return np.random.default_rng(seed).normal(0.0, 1.0, shape)


def planted_market(panel):
    """Panel and history of a market in which names earn more after the next fill if their volume rises."""
    scores = noise(*panel.close_returns.shape, seed=1)
    earned = np.vstack([np.zeros((2, N_NAMES)), scores[:-2]])  # two sessions later, so that the fill comes before
    volumes, panel = (
        np.exp(10.0 + 0.1 * scores.cumsum(axis=0)),
        replace(panel, close_returns=panel.close_returns + 0.004 * earned),
    )
    closes = 100.0 * np.cumprod(1.0 + panel.close_returns, axis=0)
    before = closes / (1.0 + panel.close_returns)
    opens, highs, lows = (
        before * (1.0 + returns) for returns in (panel.overnight_returns, panel.high_returns, panel.low_returns)
    )
    history = PriceHistory(panel.sessions, panel.symbols, closes, volumes, highs, lows, opens, panel.calendar)
    return panel, history


def test_of_twenty_random_alphas_and_a_planted_one_only_that_is_significant():
    panel, history = planted_market(synthetic_panel(N_SESSIONS, N_NAMES, seed=4))
    assert len(RANDOM) == 20
    found = [rank_ic(Formula(formula=tree).values(history), panel) for tree in (*RANDOM, PLANTED)]
    adjusted = adjusted_p_values(np.array([ic.p_value for ic in found]), "benjamini_hochberg")
    assert (adjusted <= 0.05).tolist() == [False] * 20 + [True]
    assert found[-1].mean_ic > 0.05


def test_correlations_are_spearmans_over_eligible_names_with_a_value():
    panel, values = eventful_panel(120), noise(120, 6)
    values[::7, 0] = np.nan
    later, found = returns_after_fill(panel), session_ics(values, panel)
    for t in range(120 - HORIZON - 1):
        names = panel.eligible[t] & ~np.isnan(values[t])
        expected = spearmanr(values[t, names], later[t, names])[0] if names.sum() >= 3 else np.nan
        assert found[t] == pytest.approx(expected, abs=1e-12, nan_ok=True)
    assert np.isnan(found[120 - HORIZON - 1 :]).all()


def test_return_runs_from_the_next_open_over_five_sessions():
    panel, t = synthetic_panel(40), 20
    closes = np.cumprod(1.0 + panel.close_returns, axis=0)
    opens = closes[:-1] * (1.0 + panel.overnight_returns[1:])  # of sessions from 1
    np.testing.assert_allclose(returns_after_fill(panel)[t], opens[t + 5] / opens[t] - 1.0, atol=1e-12)
    without = replace(panel, overnight_returns=None)
    np.testing.assert_allclose(returns_after_fill(without)[t], closes[t + 6] / closes[t + 1] - 1.0, atol=1e-12)


def test_correlation_depends_on_nothing_after_the_last_fill():
    panel, values = synthetic_panel(200), noise(200, 4)
    other = session_ics(values, with_other_future(panel, 150))
    known = 150 - HORIZON - 1
    np.testing.assert_array_equal(other[: known + 1], session_ics(values, panel)[: known + 1])


@pytest.mark.parametrize("n_sessions", [3, 60])
def test_market_too_short_for_a_mean_has_no_figure(n_sessions):
    ic = rank_ic(noise(n_sessions, 4), synthetic_panel(n_sessions))
    assert (ic.mean_ic, ic.p_value) == (None, 1.0)
    assert str(MIN_SESSIONS) in ic.note


def test_constant_values_have_no_correlation():
    assert rank_ic(np.ones((200, 4)), synthetic_panel(200)).n_sessions == 0


def test_perfect_foresight_has_correlations_of_1_and_no_p_value():
    panel = synthetic_panel(200)
    ic = rank_ic(returns_after_fill(panel), panel)
    assert (ic.n_sessions, ic.p_value) == (200 - HORIZON - 1, 1.0)
