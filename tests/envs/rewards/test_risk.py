import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from nvtrader_pipelines.envs.accounts import Accounts
from nvtrader_pipelines.envs.rewards import CvarExcess, DrawdownPenalty, LogGrowth, VolatilityPenalty
from nvtrader_pipelines.envs.rewards.realized_risk import expected_shortfalls
from nvtrader_pipelines.envs.spec import EnvSpec
from tests.markets import synthetic_panel

LEVELS = st.floats(0.85, 0.98)


def take_step(term):
    accounts = Accounts(synthetic_panel(90, 3), EnvSpec(rewards=(LogGrowth(), term), vol_penalty=0.0), 2, t=10)
    target = np.random.default_rng(0).dirichlet(np.ones(4), 2)
    for _ in range(7):
        step = accounts.trade(target, np.ones(2, dtype=bool), 10)
    return accounts.recent_returns, step.reward_terms[term.kind]


@given(returns=arrays(float, 63, elements=st.floats(-0.2, 0.2)), level=LEVELS)
def test_expected_shortfall_minimizes_rockafellar_uryasev(returns, level):
    losses = -returns
    objective = [at + np.maximum(losses - at, 0.0).mean() / (1.0 - level) for at in losses]
    assert expected_shortfalls(returns[None, :], level)[0] == pytest.approx(min(objective), abs=1e-12)


def test_expected_shortfall_counts_the_boundary_return_in_part():
    returns = np.array([[-0.10, -0.04, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]])
    np.testing.assert_allclose(expected_shortfalls(returns, 0.85), [(0.10 + 0.5 * 0.04) / 1.5], rtol=1e-12)


@given(returns=arrays(float, (3, 63), elements=st.floats(-0.2, 0.2)), level=LEVELS)
def test_expected_shortfalls_of_many_rows_equal_single_ones(returns, level):
    alone = [expected_shortfalls(row[None, :], level)[0] for row in returns]
    assert expected_shortfalls(returns, level).tolist() == alone


def test_expected_shortfall_with_tail_below_one_is_refused():
    with pytest.raises(ValueError):
        expected_shortfalls(np.zeros((1, 10)), 0.95)


def test_volatility_penalty_is_the_weighted_deviation():
    recent, penalty = take_step(VolatilityPenalty(weight=3.0, window=21))
    np.testing.assert_allclose(penalty, -3.0 * np.std(recent[:, -21:], axis=1, ddof=0), rtol=1e-13)


@pytest.mark.slow
def test_cvar_term_is_the_weighted_excess_over_its_limit():
    recent, excess = take_step(CvarExcess(weight=2.0, limit=0.004, confidence_level=0.9))
    expected = [-2.0 * (expected_shortfalls(row[None, :], 0.9)[0] - 0.004) for row in recent]
    assert max(expected) < 0.0
    np.testing.assert_allclose(excess, expected, rtol=1e-13)


def test_cvar_term_below_its_limit_is_zero():
    _, excess = take_step(CvarExcess(limit=0.5))
    assert not excess.any()


def test_drawdown_penalty_is_the_weighted_drawdown():
    term = DrawdownPenalty(weight=2.0)
    accounts = Accounts(synthetic_panel(90, 3), EnvSpec(rewards=(term,), vol_penalty=0.0), 2, t=10)
    target, equity = np.random.default_rng(0).dirichlet(np.ones(4), 2), [np.ones((2, 1))]
    for _ in range(7):
        step = accounts.trade(target, np.ones(2, dtype=bool), 10)
        equity.append(step.path)
        closes = np.concatenate(equity, axis=1)
        expected = -2.0 * (1.0 - closes[:, -1] / closes.max(axis=1))
        np.testing.assert_allclose(step.reward_terms["drawdown_penalty"], expected, rtol=1e-12, atol=1e-15)
