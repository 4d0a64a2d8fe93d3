from dataclasses import replace

import numpy as np
import pytest

from nvtrader_pipelines.envs.accounts import Accounts, opened_account, settled
from nvtrader_pipelines.envs.dynamics import drift, hold, holding_period, market_legs
from nvtrader_pipelines.envs.rewards import BenchmarkRelative, CvarExcess, LogGrowth
from nvtrader_pipelines.envs.spec import EnvSpec
from nvtrader_pipelines.portfolio.costs import total_cost
from tests.panels import GAP, GAPPY, STEADY, eventful_panel

CASH = 6  # its column
SPEC = EnvSpec(rewards=(LogGrowth(), BenchmarkRelative(), CvarExcess(limit=0.0)), vol_penalty=1.0)


def traded(accounts, generator, n_steps=6, n_sessions=5):
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


def test_equity_is_the_product_of_net_growth_and_drawdown_counts_from_the_highest_close():
    accounts = Accounts(eventful_panel(), SPEC, 3, t=20)
    steps = traded(accounts, np.random.default_rng(0))
    growth = np.concatenate([step.transition.session_growth for step in steps], axis=1)
    path = np.concatenate([step.path for step in steps], axis=1)
    np.testing.assert_allclose(path, np.cumprod(growth, axis=1), rtol=1e-13)
    np.testing.assert_array_equal(accounts.equity, path[:, -1])
    peak = np.maximum(1.0, path.max(axis=1))
    np.testing.assert_array_equal(accounts.peak, peak)
    np.testing.assert_array_equal(accounts.drawdown, 1.0 - path[:, -1] / peak)
    assert accounts.t.tolist() == [50, 50, 50]


def test_the_recent_returns_are_the_last_net_session_returns_newest_last_after_zeros():
    accounts = Accounts(eventful_panel(), SPEC, 2, t=20)
    steps = traded(accounts, np.random.default_rng(1))
    returns = np.concatenate([step.transition.session_growth for step in steps], axis=1) - 1.0
    np.testing.assert_array_equal(accounts.recent_returns[:, -30:], returns)
    assert not accounts.recent_returns[:, :-30].any()


def test_the_reward_is_the_sum_of_its_terms():
    (step,) = traded(Accounts(eventful_panel(), SPEC, 4, t=20), np.random.default_rng(2), n_steps=1)
    assert set(step.reward_terms) == {"log_growth", "benchmark_relative", "cvar_excess", "volatility_penalty"}
    np.testing.assert_array_equal(step.reward, sum(step.reward_terms.values(), start=np.zeros(4)))


def test_reopening_an_account_leaves_the_others_and_what_was_recorded_alone():
    accounts = Accounts(eventful_panel(), SPEC, 3, t=20)
    step = traded(accounts, np.random.default_rng(3))[-1]
    recorded, equity = (step.transition.weights.copy(), step.drawdown), accounts.equity.copy()
    accounts.open([1], [40])
    np.testing.assert_array_equal(step.transition.weights, recorded[0])
    np.testing.assert_array_equal(step.drawdown, recorded[1])
    assert accounts.t.tolist() == [50, 40, 50]
    assert accounts.account(1).weights.tolist() == [0, 0, 0, 0, 0, 0, 1]
    assert (accounts.account(1).equity, accounts.account(1).peak) == (1.0, 1.0)
    assert not accounts.recent_returns[1].any()
    assert accounts.equity[[0, 2]].tolist() == equity[[0, 2]].tolist()


def test_accounts_restored_from_a_state_have_its_drawdown_and_trade_on():
    accounts, other = (Accounts(eventful_panel(), SPEC, 3, t=20) for _ in range(2))
    traded(accounts, np.random.default_rng(4))
    other.restore(accounts.state())
    assert accounts.drawdown.any()
    np.testing.assert_array_equal(other.drawdown, accounts.drawdown)
    for one, two in zip(*(traded(each, np.random.default_rng(5)) for each in (accounts, other)), strict=True):
        np.testing.assert_array_equal(one.reward, two.reward)


def test_a_step_longer_than_what_is_kept_leaves_its_last_returns():
    accounts = Accounts(eventful_panel(), SPEC, 2, t=20)
    (step,) = traded(accounts, np.random.default_rng(6), n_steps=1, n_sessions=70)
    np.testing.assert_array_equal(accounts.recent_returns, step.transition.session_growth[:, -63:] - 1.0)


def test_the_drawdown_of_a_step_counts_at_each_close_from_the_highest_close_so_far():
    accounts = Accounts(eventful_panel(), SPEC, 3, t=20)
    steps = traded(accounts, np.random.default_rng(0))
    path = np.concatenate([np.ones((3, 1)), *(step.path for step in steps)], axis=1)
    expected = 1.0 - path / np.maximum.accumulate(path, axis=1)
    np.testing.assert_array_equal(np.concatenate([step.drawdown for step in steps], axis=1), expected[:, 1:])
    np.testing.assert_array_equal(steps[-1].drawdown[:, -1], accounts.drawdown)


def test_the_default_spec_pays_basis_points_on_the_changes_of_the_names_to_the_last_bit():
    for step in traded(Accounts(eventful_panel(), EnvSpec(), 3, t=20), np.random.default_rng(7)):
        paid = np.minimum(1.0, 10.0 * 1e-4 * np.abs(step.transition.trades[:, :-1]).sum(axis=1))
        np.testing.assert_array_equal(step.transition.cost, paid)


@pytest.mark.parametrize("column", [STEADY, GAPPY, CASH], ids=["a name", "a name without a price", "cash"])
def test_weights_that_are_no_numbers_stop_the_run_instead_of_spreading(column):
    accounts = Accounts(eventful_panel(), SPEC, 2, t=GAP[0])
    target = np.full((2, 7), 1 / 7)
    target[1, column] = np.nan
    with pytest.raises(ValueError, match=r"not a finite number.*target weights or the panel's returns"):
        accounts.trade(target, np.ones(2, dtype=bool), 5)


def test_a_return_that_is_no_number_stops_the_run_instead_of_spreading():
    panel = eventful_panel()
    returns = panel.close_returns.copy()
    returns[23, 0] = np.nan
    accounts = Accounts(replace(panel, close_returns=returns), SPEC, 1, t=20)
    with pytest.raises(ValueError, match="not a finite number"):
        accounts.trade(np.full((1, 7), 1 / 7), np.ones(1, dtype=bool), 5)


@pytest.mark.parametrize("fill", ["next_open", "next_close", "same_close"])
def test_an_account_moved_session_by_session_is_the_one_moved_in_one_step_to_the_last_bit(fill):
    panel, generator = eventful_panel(), np.random.default_rng(4)
    spec = SPEC.model_copy(update={"fill": fill})
    accounts, one = Accounts(panel, spec, 3, t=20), opened_account(6)
    legs, cost = market_legs(panel, fill), total_cost(spec.cost_models, panel)
    for t in range(20, 140, 5):
        target, wanted = generator.dirichlet(np.ones(7), 3), generator.random(3) < 0.8
        step = accounts.trade(target, wanted, 5)
        at = np.array([t])
        done = hold(one.weights[None, :], target[1:2], wanted[1:2], holding_period(legs, at, 1), cost)
        one = settled(one, done.weights[0], float(done.session_growth[0, 0]))
        path = [one.equity]
        for later in range(1, 5):
            held, growth = drift(one.weights[None, :], holding_period(legs, at + later, 1))
            one = settled(one, held[0], float(growth[0]))
            path.append(one.equity)
        assert path == step.path[1].tolist()
        assert one.weights.tolist() == accounts.weights[1].tolist()
        assert (one.peak, one.drawdown) == (accounts.peak[1], accounts.drawdown[1])
        assert one.recent_returns.tolist() == accounts.recent_returns[1].tolist()


def test_an_account_drifts_one_session_of_the_panel_at_a_time():
    panel = eventful_panel()
    legs, weights = market_legs(panel, "next_close"), opened_account(6).weights[None, :]
    with pytest.raises(ValueError, match="one session at a time, but the period has 2"):
        drift(weights, holding_period(legs, np.array([3]), 2))
    with pytest.raises(IndexError, match="needs sessions the panel does not have"):
        drift(weights, holding_period(legs, np.array([len(panel.sessions) - 1]), 1))


def test_an_account_whose_equity_would_be_no_number_is_not_settled():
    with pytest.raises(ValueError, match="finite number"):
        settled(opened_account(6), opened_account(6).weights, float("nan"))
