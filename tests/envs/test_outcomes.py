from dataclasses import replace

import numpy as np
import pytest

from nvtrader_pipelines.envs.account import situation_of
from nvtrader_pipelines.envs.accounts import Accounts
from nvtrader_pipelines.envs.dynamics import holding_period, market_legs
from nvtrader_pipelines.envs.outcomes import outcomes_of
from nvtrader_pipelines.envs.spec import EnvSpec
from nvtrader_pipelines.portfolio.losses import NEVER, count_since_loss
from nvtrader_pipelines.portfolio.pipeline import Thresholds
from tests.envs.two_names import run, two_names
from tests.panels import GAPPY, eventful_panel


def env(fill="same_close", bps=0.0):
    return EnvSpec(fill=fill, turnover_cost_bps=bps, vol_penalty=0.0)


def counts_after(panel, targets, spec, n_sessions=1):
    """Decisions since each name's last loss after each decision of one account."""
    accounts, counts = Accounts(panel, spec, 1, tracks_positions=True), []
    for target in targets:
        accounts.trade(np.array([target]), np.array([True]), n_sessions)
        counts.append(accounts.account(0).since_loss.tolist())
    return counts


def test_since_loss_counts_decisions_of_long_and_short_positions():
    returns = [[0.0, 0.0], [-0.02, 0.01], [0.03, 0.0], [-0.01, -0.01], [0.0, 0.02], [0.01, 0.0]]
    targets = [[0.5, -0.3, 0.8], [0.5, -0.3, 0.8], [0.0, -0.3, 1.3], [0.2, 0.2, 0.6], [0.0, 0.0, 1.0]]
    assert counts_after(two_names(returns), targets, env()) == [
        [0, 0],  # the long position fell, the short one rose
        [NEVER, 1],  # a profit resets; no return is neither
        [NEVER, NEVER],  # a name that is not held does not lose; a short position that falls is a profit
        [NEVER, NEVER],
        [NEVER, NEVER],
    ]


def test_since_loss_grows_by_one_per_decision_until_never():
    returns = np.zeros((300, 2))
    returns[1:3, 0] = -0.01
    counts = counts_after(two_names(returns), [[0.5, 0.0, 0.5]] * 2 + [[0.0, 0.0, 1.0]] * 290, env())
    assert [first for first, _ in counts[:256]] == [0, *range(255)]
    assert [first for first, _ in counts[256:]] == [NEVER] * len(counts[256:])


def test_losses_are_counted_over_the_whole_period_of_a_decision():
    returns = [[0.0, 0.0], [-0.05, 0.01], [0.06, -0.01], [0.001, -0.01]]
    assert counts_after(two_names(returns), [[0.5, 0.3, 0.2]], env(), n_sessions=3) == [[NEVER, 0]]


def test_cost_is_shared_by_absolute_trades():
    panel = two_names([[0.0, 0.0], [0.0015, 0.0005]])
    assert counts_after(panel, [[0.5, 0.3, 0.2]], env(bps=10.0)) == [[NEVER, 0]]
    period = holding_period(market_legs(panel, "same_close"), np.array([0]), 1)
    transition = run(panel, "same_close", [0.0, 0.0, 1.0], [0.5, 0.3, 0.2], 1, cost_rate=0.001)
    value, basis, cost = outcomes_of(np.array([[0.0, 0.0, 1.0]]), transition, period)[:, 0]
    np.testing.assert_allclose(value - basis, [0.00075, 0.00015], atol=1e-15)
    np.testing.assert_allclose(cost, [0.0005, 0.0003], atol=1e-15)


@pytest.mark.parametrize(("earned", "count"), [(-1.1e-5, 0), (-0.9e-5, 8), (0.0, 8), (0.9e-5, 8), (1.1e-5, NEVER)])
def test_outcomes_within_the_tolerance_neither_lose_nor_reset(earned, count):
    outcomes = np.array([[0.5 + earned], [0.5], [0.0]])
    assert count_since_loss(np.array([7]), outcomes).tolist() == [count]


def test_weights_too_small_to_count_do_not_lose():
    panel = two_names([[0.0, 0.0], [-0.9, -0.9]])
    assert counts_after(panel, [[1e-4, 1.1e-4, 0.99979]], env()) == [[NEVER, 0]]


def test_return_before_the_fill_counts_for_what_was_held_then():
    returns, overnight = np.zeros((4, 2)), np.zeros((4, 2))
    returns[2] = overnight[2] = -0.1, -0.1  # both gap down at the second fill
    panel = two_names(returns, overnight)
    targets = [[0.5, 0.0, 0.5], [0.0, 0.5, 0.5]]  # sells the first and buys the second after the gap
    assert counts_after(panel, targets, env("next_open")) == [[NEVER, NEVER], [0, NEVER]]


def test_position_without_a_return_yet_does_not_lose_its_cost():
    panel = two_names([[0.0, 0.0], [0.02, 0.02], [0.02, -0.02]])
    targets = [[0.4, 0.4, 0.2], [0.4, 0.4, 0.2]]
    assert counts_after(panel, targets, env("next_close", bps=50.0)) == [[NEVER, NEVER], [NEVER, 0]]


@pytest.mark.parametrize("fill", ["next_open", "next_close", "same_close"])
def test_many_accounts_lose_as_each_alone(fill):
    panel, spec = eventful_panel(), env(fill, bps=10.0)
    together = Accounts(panel, spec, 4, t=20, tracks_positions=True)
    alone = [Accounts(panel, spec, 1, t=20, tracks_positions=True) for _ in range(4)]
    generator, seen = np.random.default_rng(3), set()
    for _ in range(12):
        targets, is_trading = generator.dirichlet(np.ones(7), 4), generator.random(4) < 0.7
        together.trade(targets, is_trading, 3)
        for i, one in enumerate(alone):
            one.trade(targets[i : i + 1], is_trading[i : i + 1], 3)
            np.testing.assert_array_equal(together.since_loss[i], one.since_loss[0])
        seen |= set(together.since_loss.ravel().tolist())
    assert {0, 1, NEVER} <= seen


def test_losses_do_not_depend_on_later_returns():
    panel = eventful_panel()
    other = replace(panel, close_returns=np.where(np.arange(160)[:, None] > 40, 0.5, panel.close_returns))
    for each in (panel, other):
        accounts = Accounts(each, env(), 1, t=20, tracks_positions=True)
        for _ in range(4):
            accounts.trade(np.full((1, 7), 1.0 / 7), np.array([True]), 5)
        if each is panel:
            known = accounts.since_loss.copy()
    assert known[0].tolist() == accounts.since_loss[0].tolist()
    assert known[0, GAPPY] >= 0


def test_reopened_account_has_never_lost_and_state_restores_losses():
    panel = two_names(np.full((8, 2), -0.01))
    accounts, other = (Accounts(panel, env(), 2, tracks_positions=True) for _ in range(2))
    accounts.trade(np.array([[0.5, 0.0, 0.5]] * 2), np.array([True, True]), 1)
    other.restore(accounts.state())
    accounts.open([1], [3])
    assert accounts.since_loss.tolist() == [[0, NEVER], [NEVER, NEVER]]
    assert other.since_loss.tolist() == [[0, NEVER], [0, NEVER]]


def test_accounts_that_track_no_losses_have_never_lost():
    accounts = Accounts(two_names(np.full((4, 2), -0.01)), env(), 1)
    accounts.trade(np.array([[0.5, 0.3, 0.2]]), np.array([True]), 1)
    assert accounts.account(0).since_loss.tolist() == [NEVER, NEVER]


def test_situation_has_the_losses_of_the_account():
    panel = two_names(np.full((4, 2), -0.01))
    accounts = Accounts(panel, env(), 1, tracks_positions=True)
    accounts.trade(np.array([[0.5, 0.0, 0.5]]), np.array([True]), 1)
    assert situation_of(accounts.account(0), panel, 1, Thresholds(), 1).since_loss.tolist() == [0, NEVER]


@pytest.mark.parametrize("value", [0.1 + 0.2, 0.3 - 1e-15, 0.3], ids=["above", "below", "equal"])
def test_cost_of_a_name_without_return_is_no_loss(value):
    outcomes = np.array([[value], [0.3], [0.001]])
    assert count_since_loss(np.array([7]), outcomes).tolist() == [8]
