from dataclasses import replace

import numpy as np
import pytest

from nvtrader_pipelines.envs.accounts import Accounts, opening_account_with_history, settle
from nvtrader_pipelines.envs.dynamics import drift, hold, holding_period, market_legs
from nvtrader_pipelines.envs.rewards import BenchmarkRelative, CvarExcess, LogGrowth
from nvtrader_pipelines.envs.spec import EnvSpec
from nvtrader_pipelines.portfolio.costs import no_cost, total_cost
from tests.panels import GAP, GAPPY, STEADY, eventful_panel

CASH = 6  # its column
SPEC = EnvSpec(rewards=(LogGrowth(), BenchmarkRelative(), CvarExcess(limit=0.0)), vol_penalty=1.0)


def trade_randomly(accounts, generator, n_steps=6, n_sessions=5):
    n, size = accounts.weights.shape
    return [
        accounts.trade(generator.dirichlet(np.ones(size), n), generator.random(n) < 0.8, n_sessions)
        for _ in range(n_steps)
    ]


def test_accounts_open_in_cash_with_equity_one():
    accounts = Accounts(eventful_panel(), SPEC, 2, t=7)
    assert accounts.weights.tolist() == [[0, 0, 0, 0, 0, 0, 1]] * 2
    assert accounts.equity.tolist() == accounts.peak.tolist() == [1.0, 1.0]
    assert accounts.t.tolist() == [7, 7]


def test_equity_is_the_product_of_net_growth():
    accounts = Accounts(eventful_panel(), SPEC, 3, t=20)
    steps = trade_randomly(accounts, np.random.default_rng(0))
    growth = np.concatenate([step.transition.session_growth for step in steps], axis=1)
    path = np.concatenate([step.path for step in steps], axis=1)
    np.testing.assert_allclose(path, np.cumprod(growth, axis=1), rtol=1e-13)
    np.testing.assert_array_equal(accounts.equity, path[:, -1])
    peak = np.maximum(1.0, path.max(axis=1))
    np.testing.assert_array_equal(accounts.peak, peak)
    np.testing.assert_array_equal(accounts.drawdown, 1.0 - path[:, -1] / peak)
    assert accounts.t.tolist() == [50, 50, 50]


def test_recent_returns_are_the_last_net_session_returns():
    accounts = Accounts(eventful_panel(), SPEC, 2, t=20)
    steps = trade_randomly(accounts, np.random.default_rng(1))
    returns = np.concatenate([step.transition.session_growth for step in steps], axis=1) - 1.0
    np.testing.assert_array_equal(accounts.recent_returns[:, -30:], returns)
    assert not accounts.recent_returns[:, :-30].any()


def test_reward_is_the_sum_of_its_terms():
    (step,) = trade_randomly(Accounts(eventful_panel(), SPEC, 4, t=20), np.random.default_rng(2), n_steps=1)
    assert set(step.reward_terms) == {"log_growth", "benchmark_relative", "cvar_excess", "volatility_penalty"}
    np.testing.assert_array_equal(step.reward, sum(step.reward_terms.values(), start=np.zeros(4)))


def test_reset_account_leaves_others_and_past_steps_unchanged():
    accounts = Accounts(eventful_panel(), SPEC, 3, t=20)
    step = trade_randomly(accounts, np.random.default_rng(3))[-1]
    recorded, equity = (step.transition.weights.copy(), step.drawdown), accounts.equity.copy()
    accounts.open([1], [40])
    np.testing.assert_array_equal(step.transition.weights, recorded[0])
    np.testing.assert_array_equal(step.drawdown, recorded[1])
    assert accounts.t.tolist() == [50, 40, 50]
    assert accounts.account(1).weights.tolist() == [0, 0, 0, 0, 0, 0, 1]
    assert (accounts.account(1).equity, accounts.account(1).peak) == (1.0, 1.0)
    assert not accounts.recent_returns[1].any()
    assert accounts.equity[[0, 2]].tolist() == equity[[0, 2]].tolist()


def test_restored_accounts_continue_with_their_drawdown():
    accounts, other = (Accounts(eventful_panel(), SPEC, 3, t=20) for _ in range(2))
    trade_randomly(accounts, np.random.default_rng(4))
    other.restore(accounts.state())
    assert accounts.drawdown.any()
    np.testing.assert_array_equal(other.drawdown, accounts.drawdown)
    for one, two in zip(*(trade_randomly(each, np.random.default_rng(5)) for each in (accounts, other)), strict=True):
        np.testing.assert_array_equal(one.reward, two.reward)


def test_long_step_stores_its_last_returns():
    accounts = Accounts(eventful_panel(), SPEC, 2, t=20)
    (step,) = trade_randomly(accounts, np.random.default_rng(6), n_steps=1, n_sessions=70)
    np.testing.assert_array_equal(accounts.recent_returns, step.transition.session_growth[:, -63:] - 1.0)


def test_step_drawdown_is_from_the_running_maximum():
    accounts = Accounts(eventful_panel(), SPEC, 3, t=20)
    steps = trade_randomly(accounts, np.random.default_rng(0))
    path = np.concatenate([np.ones((3, 1)), *(step.path for step in steps)], axis=1)
    expected = 1.0 - path / np.maximum.accumulate(path, axis=1)
    np.testing.assert_array_equal(np.concatenate([step.drawdown for step in steps], axis=1), expected[:, 1:])
    np.testing.assert_array_equal(steps[-1].drawdown[:, -1], accounts.drawdown)


def test_default_cost_is_exactly_bps_of_absolute_changes():
    for step in trade_randomly(Accounts(eventful_panel(), EnvSpec(), 3, t=20), np.random.default_rng(7)):
        paid = np.minimum(1.0, 10.0 * 1e-4 * np.abs(step.transition.trades[:, :-1]).sum(axis=1))
        np.testing.assert_array_equal(step.transition.cost, paid)


@pytest.mark.parametrize("column", [STEADY, GAPPY, CASH], ids=["a name", "a name without a price", "cash"])
def test_nan_target_weights_are_refused(column):
    accounts = Accounts(eventful_panel(), SPEC, 2, t=GAP[0])
    target = np.full((2, 7), 1 / 7)
    target[1, column] = np.nan
    with pytest.raises(ValueError):
        accounts.trade(target, np.ones(2, dtype=bool), 5)


def test_nan_return_is_refused():
    panel = eventful_panel()
    returns = panel.close_returns.copy()
    returns[23, 0] = np.nan
    accounts = Accounts(replace(panel, close_returns=returns), SPEC, 1, t=20)
    with pytest.raises(ValueError):
        accounts.trade(np.full((1, 7), 1 / 7), np.ones(1, dtype=bool), 5)


@pytest.mark.parametrize("fill", ["next_open", "next_close", "same_close"])
def test_account_moved_by_sessions_equals_one_step_bit_for_bit(fill):
    panel, generator = eventful_panel(), np.random.default_rng(4)
    spec = SPEC.model_copy(update={"fill": fill})
    accounts, one = Accounts(panel, spec, 3, t=20), opening_account_with_history(6)
    legs, cost = market_legs(panel, fill), total_cost(spec.cost_models, panel)
    for t in range(20, 140, 5):
        target, wanted = generator.dirichlet(np.ones(7), 3), generator.random(3) < 0.8
        step = accounts.trade(target, wanted, 5)
        at = np.array([t])
        done = hold(one.weights[None, :], target[1:2], wanted[1:2], holding_period(legs, at, 1), cost)
        one = settle(one, done.weights[0], float(done.session_growth[0, 0]))
        path = [one.equity]
        for later in range(1, 5):
            held = drift(one.weights[None, :], holding_period(legs, at + later, 1), no_cost)
            one = settle(one, held.weights[0], float(held.session_growth[0, 0]))
            path.append(one.equity)
        assert path == step.path[1].tolist()
        assert one.weights.tolist() == accounts.weights[1].tolist()
        assert (one.peak, one.drawdown) == (accounts.peak[1], accounts.drawdown[1])
        assert one.recent_returns.tolist() == accounts.recent_returns[1].tolist()


def test_drift_of_several_sessions_is_refused():
    panel = eventful_panel()
    legs, weights = market_legs(panel, "next_close"), opening_account_with_history(6).weights[None, :]
    with pytest.raises(ValueError):
        drift(weights, holding_period(legs, np.array([3]), 2), no_cost)
    with pytest.raises(IndexError):
        drift(weights, holding_period(legs, np.array([len(panel.sessions) - 1]), 1), no_cost)


def test_account_with_nan_equity_is_not_settled():
    with pytest.raises(ValueError):
        settle(opening_account_with_history(6), opening_account_with_history(6).weights, float("nan"))
