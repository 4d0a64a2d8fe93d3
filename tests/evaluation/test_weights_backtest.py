from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nvtrader_pipelines.envs.account import opening_account
from nvtrader_pipelines.envs.accounts import Accounts
from nvtrader_pipelines.envs.dynamics import hold, holding_period, market_legs
from nvtrader_pipelines.envs.rewards import LogGrowth
from nvtrader_pipelines.envs.spec import EnvSpec
from nvtrader_pipelines.evaluation.backtest import PolicyAccount, walk
from nvtrader_pipelines.evaluation.splits import Fold
from nvtrader_pipelines.evaluation.weights_backtest import Execution, weights_backtest
from nvtrader_pipelines.policies.policy import Decision
from nvtrader_pipelines.portfolio.costs import ProportionalCost, SquareRootImpact, VolatilitySpread, total_cost
from nvtrader_pipelines.portfolio.financing import Financing
from tests.markets import synthetic_panel
from tests.panels import cut, eventful_panel, with_other_future

FILLS = ("next_open", "next_close", "same_close")
COSTS = ((), (ProportionalCost(bps=20.0),), (ProportionalCost(), VolatilitySpread(), SquareRootImpact()))
DEAR = Financing(margin_rate=0.20, borrow_fee=0.10)
PANEL = eventful_panel()
CASH = [0.0] * 6 + [1.0]
seeds = st.integers(0, 2**32 - 1)


def simplex(n_rows, seed=0, n_columns=7):
    return np.random.default_rng(seed).dirichlet(np.full(n_columns, 0.4), n_rows)


def long_and_short(n_rows, generator):
    names = generator.normal(0.2, 0.4, (n_rows, 6))
    return np.column_stack([names, 1.0 - names.sum(axis=1)])


def decided_at(generator, n_sessions, every):
    """Decisions of an account, every so many sessions or (0) now and then."""
    start = int(generator.integers(0, 40))
    if every:
        return np.arange(start, n_sessions - 1, every)
    return np.sort(generator.choice(np.arange(start, n_sessions - 1), 25, replace=False))


def assert_path(path, sessions, arrays):
    """The path has these sessions and, bit for bit, these arrays."""
    np.testing.assert_array_equal(path.sessions, sessions)
    for name, expected in arrays.items():
        np.testing.assert_array_equal(getattr(path, name), expected, err_msg=name)


# --- the environment's arithmetic --------------------------------------------------------------------------------


@pytest.mark.slow
@given(
    seed=seeds,
    fill=st.sampled_from(FILLS),
    every=st.sampled_from([0, 1, 2, 5, 21]),
    costs=st.sampled_from(COSTS),
    opens=st.booleans(),
)
def test_a_back_test_is_bit_equal_to_an_account_traded_step_by_step(seed, fill, every, costs, opens):
    generator = np.random.default_rng(seed)
    panel = eventful_panel(100, seed=seed % 5, opens=opens)
    at = decided_at(generator, 100, every)
    target = simplex(len(at), seed)
    spec = EnvSpec(fill=fill, turnover_cost_bps=0.0, costs=costs, rewards=(LogGrowth(),), vol_penalty=0.0)
    accounts, steps, peaks = Accounts(panel, spec, 1, t=int(at[0])), [], []
    for row, n_sessions in zip(target, np.diff(np.append(at, 99)), strict=True):
        steps.append(accounts.trade(row[None, :], np.array([True]), int(n_sessions)))
        peaks.append(steps[-1].drawdown[0])
    done = [step.transition for step in steps]
    first = at - at[0]
    turnover, cost = np.zeros(99 - at[0]), np.zeros(99 - at[0])
    turnover[first], cost[first] = [d.turnover[0] for d in done], [d.cost[0] for d in done]
    path = weights_backtest(panel, target, Execution(fill=fill, costs=costs), sessions=panel.sessions[at])
    expected = {
        "equity": np.concatenate([step.path[0] for step in steps]),
        "net_returns": np.concatenate([d.session_growth[0] for d in done]) - 1.0,
        "drawdown": np.concatenate(peaks),
        "turnover": turnover,
        "cost": cost,
        "cash": np.concatenate([d.session_cash[0] for d in done]),
        "decided_on": panel.sessions[at],
        "drifted": np.concatenate([d.drifted for d in done]),
        "executed": np.concatenate([d.executed for d in done]),
        "trades": np.concatenate([d.trades for d in done]),
    }
    assert_path(path, panel.sessions[at[0] + 1 :], expected)
    ends = np.append(first[1:], len(path.weights)) - 1
    np.testing.assert_array_equal(path.weights[ends], np.concatenate([d.weights for d in done]))


@pytest.mark.slow
@given(seed=seeds, fill=st.sampled_from(FILLS), every=st.sampled_from([0, 1, 5]), costs=st.sampled_from(COSTS))
def test_a_levered_back_test_is_bit_equal_to_the_transition_step_by_step(seed, fill, every, costs):
    generator = np.random.default_rng(seed)
    at = decided_at(generator, 160, every)
    target = long_and_short(len(at), generator)
    execution = Execution(fill=fill, costs=costs, financing=DEAR, gross_limit=10.0)
    path = weights_backtest(PANEL, target, execution, sessions=PANEL.sessions[at])
    legs, cost, weights, equity = market_legs(PANEL, fill, DEAR), total_cost(costs, PANEL), np.array([CASH]), 1.0
    for d, n_sessions in enumerate(np.diff(np.append(at, 159))):
        period = holding_period(legs, at[d : d + 1], int(n_sessions))
        done = hold(weights, target[d : d + 1], np.array([True]), period, cost)
        values = np.cumprod(np.append(equity, done.session_growth[0]))[1:]
        rows = slice(at[d] - at[0], at[d] - at[0] + n_sessions)
        np.testing.assert_array_equal(path.equity[rows], values)
        if not values[-1]:
            break
        np.testing.assert_array_equal(path.net_returns[rows], done.session_growth[0] - 1.0)
        np.testing.assert_array_equal(path.cash[rows], done.session_cash[0])
        np.testing.assert_array_equal(path.executed[d], done.executed[0])
        weights, equity = done.weights, values[-1]


class Scheduled:
    """Wants the weights of a table, a row per session."""

    def __init__(self, table):
        self.table = table

    def decide(self, panel, t, account):
        return Decision(target=self.table[t])


@pytest.mark.parametrize("fill", FILLS)
@pytest.mark.parametrize("rebal_freq", [1, 4, 10])
def test_weights_backtest_equals_walk_of_the_same_targets(fill, rebal_freq):
    table, fold = simplex(160), Fold(0, 0, 33, 40, 139)
    spec = EnvSpec(fill=fill, rebal_freq=rebal_freq, rewards=(LogGrowth(),), vol_penalty=0.0)
    steps = list(walk(PANEL, spec, [fold], [PolicyAccount("scheduled", "policy", (0,), (Scheduled(table),))]))
    panel, sessions = cut(PANEL, 139), PANEL.sessions[39:139:rebal_freq]
    path = weights_backtest(panel, table[:140], Execution(fill=fill), sessions=sessions)
    expected = {
        "equity": np.concatenate([step.equity[0] for step in steps]),
        "drawdown": np.concatenate([step.drawdown[0] for step in steps]),
        "executed": np.concatenate([step.outcome.transition.executed for step in steps]),
        "drifted": np.concatenate([step.outcome.transition.drifted for step in steps]),
    }
    assert_path(path, PANEL.sessions[40:140], expected)


@pytest.mark.parametrize("fill", FILLS)
def test_a_back_test_is_bit_equal_whatever_comes_after_its_last_close(fill):
    table = simplex(160)
    known, other = (weights_backtest(p, table, Execution(fill=fill)) for p in (PANEL, with_other_future(PANEL, 100)))
    for name in ("equity", "net_returns", "drawdown", "cost", "weights"):
        np.testing.assert_array_equal(getattr(known, name)[:100], getattr(other, name)[:100])
    assert known.equity[100] != other.equity[100]


def test_equity_drawdown_and_returns_of_two_sessions_by_hand():
    panel = replace(synthetic_panel(3, 2), close_returns=np.array([[0.0, 0.0], [0.10, 0.0], [-0.50, 0.20]]))
    execution = Execution(fill="same_close", costs=(ProportionalCost(bps=100.0),))
    path = weights_backtest(panel, np.array([[0.5, 0.0]]), execution, sessions=panel.sessions[:1])
    bought = 1.0 - 0.005
    np.testing.assert_allclose(path.equity, [bought * 1.05, bought * (0.5 * 1.10 * 0.50 + 0.5)], rtol=1e-15)
    np.testing.assert_allclose(path.drawdown, [0.0, 1.0 - 0.775 / 1.05], rtol=1e-14, atol=1e-15)
    assert path.turnover.tolist() == [0.5, 0.0]
    np.testing.assert_allclose(path.cost, [0.005, 0.0], rtol=1e-15)
    np.testing.assert_allclose(path.cash, [0.5 / 1.05, 0.5 / 0.775], rtol=1e-15)


# --- how weights are given ---------------------------------------------------------------------------------------


def assert_same(path, other):
    for name in vars(path):
        np.testing.assert_array_equal(getattr(path, name), getattr(other, name), err_msg=name)


def test_without_a_column_of_cash_it_is_what_the_names_leave():
    names = simplex(160)[:, :-1]
    table = np.column_stack([names, 1.0 - names.sum(axis=1)])
    assert_same(weights_backtest(PANEL, names), weights_backtest(PANEL, table))


def test_a_rounding_error_above_one_is_no_debt():
    names = np.array([[0.1, 0.2, 0.7 + 1e-12, 0.0, 0.0, 0.0]])
    path = weights_backtest(PANEL, names, sessions=PANEL.sessions[70:71])
    assert (path.cash >= 0.0).all()


def test_weights_are_decided_on_named_sessions_or_all():
    table = simplex(160)
    assert_same(weights_backtest(PANEL, table), weights_backtest(PANEL, table, sessions=PANEL.sessions))
    weekly = PANEL.sessions[3::5]
    assert_same(weights_backtest(PANEL, table, sessions=weekly), weights_backtest(PANEL, table[3::5], sessions=weekly))


def test_days_may_be_given_as_text():
    days = PANEL.sessions[[10, 20]]
    texts = [str(day) for day in days]
    table = simplex(2)
    assert_same(weights_backtest(PANEL, table, sessions=days), weights_backtest(PANEL, table, sessions=texts))


def test_columns_may_be_any_names_of_the_panel_in_any_order():
    names = simplex(160, n_columns=3)
    table = np.zeros((160, 7))
    table[:, [4, 0, 6]] = names
    symbols = [PANEL.symbols[4], PANEL.symbols[0], "cash"]
    assert_same(weights_backtest(PANEL, names, symbols=symbols), weights_backtest(PANEL, table))
    rest = weights_backtest(PANEL, names[:, :2], symbols=symbols[:2])
    np.testing.assert_allclose(rest.equity, weights_backtest(PANEL, table).equity, rtol=1e-12)


def test_an_order_of_the_last_session_is_left_out():
    table = simplex(160)
    path = weights_backtest(PANEL, table)
    assert len(path.decided_on) == len(path.equity) == 159
    assert_same(path, weights_backtest(PANEL, table[:-1], sessions=PANEL.sessions[:-1]))


def test_nothing_given_is_changed():
    table = simplex(160)
    table.setflags(write=False)
    before = table.copy()
    weights_backtest(PANEL, table)
    np.testing.assert_array_equal(table, before)


# --- the end of an account ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("fill", FILLS)
def test_ruined_levered_account_stays_in_cash(fill):
    panel = synthetic_panel(40, 6)
    fallen = panel.close_returns.copy()
    fallen[20] = -0.6
    panel = replace(panel, close_returns=fallen)
    table = np.tile([0.4] * 6 + [-1.4], (40, 1))
    path = weights_backtest(panel, table, Execution(fill=fill, gross_limit=3.0))
    assert (path.equity[:19] > 0.0).all()
    assert not path.equity[19:].any()
    assert path.net_returns[19] == -1.0
    assert path.drawdown[19:].tolist() == [1.0] * 20
    assert path.weights[19:].tolist() == [*path.executed[20:].tolist(), CASH] == [CASH] * 20
    for nothing in (path.net_returns[20:], path.turnover[20:], path.cost[20:], path.trades[20:]):
        assert not nothing.any()


def test_an_account_that_costs_take_whole_is_over_too():
    ruinous = Execution(fill="same_close", costs=(SquareRootImpact(coefficient=1e6),))
    path = weights_backtest(PANEL, simplex(160), ruinous)
    assert not path.equity.any()
    assert path.cost.tolist() == [1.0] + [0.0] * 158
    np.testing.assert_array_equal(path.cash, 1.0)


# --- what is refused ---------------------------------------------------------------------------------------------


def with_value(row, column, value):
    table = simplex(160)
    table[row, column] = value
    return table


REFUSED = [
    (np.zeros(160), {}),
    (simplex(5), {}),
    (simplex(5), {"sessions": PANEL.sessions[:4]}),
    (simplex(2), {"sessions": ["2015-01-03", "2015-01-05"]}),
    (simplex(2), {"sessions": PANEL.sessions[[4, 3]]}),
    (simplex(2), {"sessions": PANEL.sessions[[4, 4]]}),
    (simplex(1), {"sessions": PANEL.sessions[-1:]}),
    (simplex(0), {"sessions": PANEL.sessions[:0]}),
    (simplex(160, n_columns=5), {}),
    (simplex(160, n_columns=2), {"symbols": ["AAA", "XYZ"]}),
    (simplex(160, n_columns=2), {"symbols": ["AAA", "AAA"]}),
    (simplex(160, n_columns=2), {"symbols": ["AAA"]}),
    (with_value(17, 2, np.nan), {}),
    (with_value(17, 6, np.inf), {}),
    (np.tile([0.1] * 6 + [0.5], (160, 1)), {}),
    (np.full((160, 6), 0.2), {}),
    (np.tile([0.8, -0.3, 0, 0, 0, 0, 0.5], (160, 1)), {}),
]


@pytest.mark.parametrize(("weights", "how"), REFUSED)
def test_weights_that_do_not_fit_are_refused(weights, how):
    with pytest.raises(ValueError):
        weights_backtest(PANEL, weights, **how)


def test_the_default_execution_is_that_of_the_environment():
    spec, execution = EnvSpec(), Execution()
    assert (execution.fill, execution.costs) == (spec.fill, spec.cost_models)


def test_an_account_opens_in_cash_and_stays_there_until_its_first_fill():
    path = weights_backtest(PANEL, simplex(160), Execution(fill="next_close"))
    np.testing.assert_array_equal(path.drifted[0], opening_account(6).weights)
    assert path.net_returns[0] == (1.0 - path.cost[0]) - 1.0
