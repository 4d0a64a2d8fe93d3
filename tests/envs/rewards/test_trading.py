from dataclasses import replace

import numpy as np
import pytest

from nvtrader_pipelines.envs.accounts import Accounts
from nvtrader_pipelines.envs.rewards import ImplementationShortfall, RunningInventory, TurnoverPenalty
from nvtrader_pipelines.envs.spec import EnvSpec
from tests.markets import synthetic_panel

TRADE, REST = np.array([True]), np.array([False])


def begin_episodes(term, panel=None, *, fill="next_open", bps=10.0):
    """Build one account with 60 % and 20 % in two names."""
    panel = synthetic_panel(60, 2) if panel is None else panel
    spec = EnvSpec(rewards=(term,), vol_penalty=0.0, fill=fill, turnover_cost_bps=bps)
    accounts = Accounts(panel, spec, 1, t=20)
    accounts.trade(np.array([[0.6, 0.2, 0.2]]), TRADE, 5)
    return accounts


def take_step(term, target, panel=None, *, is_trading=TRADE, **fields):
    accounts = begin_episodes(term, panel, **fields)
    held = accounts.weights[0]
    return held, accounts.trade(np.array([target]), is_trading, 3)


def test_turnover_penalty_is_weighted_one_way_turnover():
    _, step = take_step(TurnoverPenalty(weight=0.2), [0.1, 0.3, 0.6])
    np.testing.assert_array_equal(step.reward_terms["turnover_penalty"], -0.2 * step.transition.turnover)
    assert step.transition.turnover[0] > 0.1


def test_shortfall_equals_paper_portfolio_less_net_return():
    panel, target = synthetic_panel(60, 2), np.array([0.1, 0.3, 0.6])
    _, step = take_step(ImplementationShortfall(weight=2.0), target, panel)
    whole = np.prod(1.0 + panel.close_returns[26:29], axis=0)
    paper = target[:2] @ whole + target[2]
    expected = -2.0 * (paper - step.transition.growth)
    np.testing.assert_allclose(step.reward_terms["implementation_shortfall"], expected, rtol=1e-9)


def test_shortfall_of_a_same_close_fill_is_the_cost():
    _, step = take_step(ImplementationShortfall(), [0.1, 0.3, 0.6], fill="same_close")
    paid = step.transition.cost * step.transition.growth / (1.0 - step.transition.cost)
    np.testing.assert_allclose(step.reward_terms["implementation_shortfall"], -paid, rtol=1e-9)


def test_shortfall_includes_unfilled_trades():
    panel = synthetic_panel(60, 2)
    closes, tradable = panel.close_returns.copy(), panel.tradable.copy()
    closes[26], closes[27], closes[28] = 0.0, [0.0, 0.5], 0.0
    tradable[26, 1] = False
    panel = replace(panel, close_returns=closes, overnight_returns=np.zeros_like(closes), tradable=tradable)
    held, step = take_step(ImplementationShortfall(), [0.0, 1.0, 0.0], panel, bps=0.0)
    assert step.transition.executed[0, 1] == held[1]
    missed = 0.5 * (1.0 - held[1])
    np.testing.assert_allclose(step.reward_terms["implementation_shortfall"], [-missed], rtol=1e-9)


def test_account_without_trade_has_no_shortfall():
    _, step = take_step(ImplementationShortfall(), [0.1, 0.3, 0.6], is_trading=REST)
    assert step.reward_terms["implementation_shortfall"].tolist() == [0.0]


def test_running_inventory_sums_squared_weights_per_close():
    panel, target = synthetic_panel(60, 2), np.array([0.5, 0.3, 0.2])
    _, step = take_step(RunningInventory(weight=0.01), target, panel, fill="next_close")
    shares, total = target, 0.0
    for session in (26, 27, 28):
        if session > 26:  # bought at the close of 26
            shares = shares * np.append(1.0 + panel.close_returns[session], 1.0)
        weights = shares / shares.sum()
        total += (weights[:2] ** 2).sum()
    np.testing.assert_allclose(step.reward_terms["running_inventory"], [-0.01 * total], rtol=1e-12)


@pytest.mark.parametrize("n_sessions", [1, 3, 10])
def test_inventory_of_one_full_name_is_one_per_session(n_sessions):
    accounts = begin_episodes(RunningInventory(weight=0.01))
    step = accounts.trade(np.array([[1.0, 0.0, 0.0]]), TRADE, n_sessions)
    np.testing.assert_allclose(step.reward_terms["running_inventory"], [-0.01 * n_sessions], rtol=1e-12)
