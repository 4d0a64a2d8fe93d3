from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nvtrader_pipelines.envs.account import opening_account
from nvtrader_pipelines.envs.dynamics import hold, hold_to_closes, holding_period, market_legs
from nvtrader_pipelines.envs.fill_timing import resolve_fill
from nvtrader_pipelines.market.calendar import TradingCalendar
from nvtrader_pipelines.portfolio.costs import no_cost, proportional_cost
from tests.envs.two_names import EXPENSIVE, FILLS, run, two_names
from tests.markets import synthetic_panel
from tests.panels import DELISTED, GAP, GAPPY, LAST_PRICE, MAX_GAP, cut, eventful_panel, with_other_future

COST = proportional_cost(0.001)
# Session 1: +10 % and 0 % by the close, of which +4 % and -2 % came overnight; session 2: -5 % and +20 %.
PRICED = two_names([[0.0, 0.0], [0.10, 0.0], [-0.05, 0.20]], [[0.0, 0.0], [0.04, -0.02], [0.01, 0.03]])
HELD, TARGET = [0.5, 0.0, 0.5], [0.0, 0.5, 0.5]


def test_next_open_earns_the_night_before_and_the_day_after_it():
    done = run(PRICED, "next_open", HELD, TARGET, 2, cost_rate=0.01)
    open_value = 0.52 + 0.5
    drifted = [0.52 / open_value, 0.0, 0.5 / open_value]
    cost = 0.01 * (drifted[0] + 0.5)
    day = 1.0 + 0.5 * (1.0 / 0.98 - 1.0)
    weight_at_close = 0.5 / 0.98 / day
    np.testing.assert_allclose(done.drifted[0], drifted, rtol=1e-15)
    np.testing.assert_allclose(done.cost, [cost], rtol=1e-14)
    np.testing.assert_allclose(done.session_growth[0, 0], open_value * (1.0 - cost) * day, rtol=1e-14)
    np.testing.assert_allclose(done.session_growth[0, 1], 1.0 + 0.20 * weight_at_close, rtol=1e-14)


def test_next_close_earns_the_next_session_on_held_weights():
    done = run(PRICED, "next_close", HELD, TARGET, 2, cost_rate=0.01)
    drifted = [0.55 / 1.05, 0.0, 0.5 / 1.05]
    cost = 0.01 * (drifted[0] + 0.5)
    np.testing.assert_allclose(done.drifted[0], drifted, rtol=1e-15)
    np.testing.assert_allclose(done.session_growth[0], [1.05 * (1.0 - cost), 1.0 + 0.5 * 0.20], rtol=1e-14)


def test_same_close_earns_the_next_session_on_target_weights():
    done = run(PRICED, "same_close", HELD, TARGET, 2, cost_rate=0.01)
    np.testing.assert_allclose(done.drifted[0], HELD, rtol=1e-15)
    np.testing.assert_allclose(done.cost, [0.01], rtol=1e-14)
    np.testing.assert_allclose(done.session_growth[0], [0.99, 1.10], rtol=1e-14)


def test_fills_agree_without_trades():
    paths = [run(PRICED, fill, HELD, HELD, 2, trade=False).session_growth for fill in FILLS]
    np.testing.assert_allclose(paths[0], paths[1], rtol=1e-15)
    np.testing.assert_allclose(paths[0], paths[2], rtol=1e-15)


def test_turnover_includes_cash_and_cost_does_not():
    done = run(PRICED, "same_close", [0.5, 0.2, 0.3], [0.1, 0.4, 0.5], 1, cost_rate=0.001)
    np.testing.assert_allclose(done.trades[0], [-0.4, 0.2, 0.2], atol=1e-15)
    np.testing.assert_allclose(done.turnover, [0.4], rtol=1e-14)
    np.testing.assert_allclose(done.cost, [0.0006], rtol=1e-14)


def test_account_without_trade_drifts_without_cost():
    done = run(PRICED, "next_open", HELD, TARGET, 2, cost_rate=0.01, trade=False)
    assert not done.trades.any()
    assert not done.turnover.any()
    assert not done.cost.any()
    np.testing.assert_allclose(done.growth, [0.5 * 1.10 * 0.95 + 0.5], rtol=1e-14)


def test_next_open_resolves_to_next_close_without_opens():
    with_opens, without = eventful_panel(), eventful_panel(opens=False)
    assert resolve_fill("next_open", with_opens) == "next_open"
    assert [resolve_fill(fill, without) for fill in FILLS] == ["next_close", "next_close", "same_close"]


def test_next_open_resolves_to_next_close_where_the_market_never_closes():
    coins = replace(synthetic_panel(), calendar=TradingCalendar("24/7"))
    assert [resolve_fill(fill, coins) for fill in FILLS] == ["next_close", "next_close", "same_close"]


def test_next_open_legs_without_opens_are_refused():
    with pytest.raises(ValueError):
        market_legs(eventful_panel(opens=False), "next_open")


def test_account_opens_in_cash():
    account = opening_account(3)
    assert account.weights.tolist() == [0.0, 0.0, 0.0, 1.0]
    assert account.drawdown == 0.0


# --- names without a price ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("fill", FILLS)
def test_unpriced_name_is_not_traded(fill):
    tradable = [[True, True], [False, True], [True, True]]
    panel = two_names([[0.0, 0.0], [0.0, 0.10], [0.30, 0.0]], [[0.0, 0.0]] * 3, tradable=tradable)
    t = 1 if fill == "same_close" else 0
    sold = run(panel, fill, [0.4, 0.2, 0.4], [0.0, 0.5, 0.5], 1, cost_rate=0.01, t=t)
    assert sold.executed[0, 0] == sold.drifted[0, 0] > 0.0
    assert sold.trades[0, 0] == 0.0
    bought = run(panel, fill, [0.0, 0.2, 0.8], [0.9, 0.1, 0.0], 1, cost_rate=0.01, t=t)
    assert bought.executed[0, 0] == 0.0
    np.testing.assert_allclose(bought.executed[0, 2], 0.9, rtol=1e-15)  # the unfilled part stays cash


def test_target_shrinks_to_the_room_beside_an_unpriced_name():
    panel = two_names([[0.0, 0.0]] * 2, tradable=[[True, True], [False, True]])
    done = run(panel, "next_close", [0.4, 0.0, 0.6], [0.0, 1.0, 0.0], 1)
    np.testing.assert_allclose(done.executed[0], [0.4, 0.6, 0.0], atol=1e-15)


def test_return_over_a_gap_is_earned_on_the_next_price():
    panel = eventful_panel()
    weights = np.eye(7)[GAPPY]
    still = run(panel, "next_close", weights, weights, GAP[1] - GAP[0], t=GAP[0] - 1, trade=False)
    back = run(panel, "next_close", weights, weights, 1, t=GAP[1] - 1, trade=False)
    np.testing.assert_array_equal(still.session_growth, np.ones((1, GAP[1] - GAP[0])))
    np.testing.assert_allclose(back.growth, 1.0 + panel.close_returns[GAP[1], GAPPY], rtol=1e-15)


def test_delisted_name_becomes_cash_at_its_last_price_without_cost():
    panel = eventful_panel()
    weights = np.eye(7)[DELISTED]
    waiting = run(panel, "next_close", weights, [1.0, 0, 0, 0, 0, 0, 0], 1, cost_rate=0.01, t=LAST_PRICE + MAX_GAP - 1)
    assert waiting.executed[0, DELISTED] == 1.0
    gone = run(panel, "next_close", weights, weights, 3, cost_rate=0.01, t=LAST_PRICE + MAX_GAP, trade=False)
    assert gone.executed[0].tolist() == [0, 0, 0, 0, 0, 0, 1]
    assert gone.growth.tolist() == [1.0]
    assert gone.turnover.tolist() == gone.cost.tolist() == [0.0]


# --- accounting --------------------------------------------------------------------------------------------------


class Shares:
    """Account in shares and currency, moved one session at a time, without weights or growth."""

    def __init__(self, n_symbols):
        self.prices = np.full(n_symbols, 100.0)
        self.shares = np.zeros(n_symbols)
        self.cash = 1_000_000.0

    @property
    def value(self):
        return float(self.shares @ self.prices) + self.cash

    def weights(self):
        return np.append(self.shares * self.prices, self.cash) / self.value

    def pay_interest(self, days, financing):
        debt = max(0.0, -self.cash)
        lent = -float(np.minimum(self.shares * self.prices, 0.0).sum())
        self.cash -= (debt * financing.margin_rate + lent * financing.borrow_fee) * days / 360

    def write_off(self, delisted):
        self.cash += float(self.shares[delisted] @ self.prices[delisted])
        self.shares[delisted] = 0.0

    def rebalance(self, target, tradable, cost_rate):
        value, held = self.value, self.shares * self.prices
        orders = np.where(tradable, target[:-1] * value, held)
        loan = max(0.0, -target[-1]) * value
        missing, sizes = orders.sum() - value - loan, np.abs(orders)
        if orders.min() < 0.0:  # what cannot be traded takes its share of the gross
            gross = max(value + loan, np.abs(target[:-1]).sum() * value)
            traded = sizes[tradable].sum()
            orders[tradable] *= min(1.0, max(0.0, gross - sizes[~tradable].sum()) / max(traded, 1e-300))
        elif missing > 0.0 and orders[tradable].sum() > 0.0:
            orders[tradable] *= max(0.0, 1.0 - missing / orders[tradable].sum())
        fee = cost_rate * np.abs(orders - held).sum()
        remaining = 1.0 - fee / value  # the fee is taken pro rata from every position
        self.shares = orders * remaining / self.prices
        self.cash = (value - orders.sum()) * remaining
        return fee


def long_only(generator):
    return generator.dirichlet(np.full(7, 0.3))


def long_and_short(generator):
    long, short = generator.uniform(0.2, 2.0), generator.uniform(0.0, 0.8)
    names = long * generator.dirichlet(np.full(6, 0.5)) - short * generator.dirichlet(np.full(6, 0.5))
    return np.append(names, 1.0 - names.sum())


@pytest.mark.parametrize("draw_target", [long_only, long_and_short])
@given(seed=st.integers(0, 2**32 - 1), fill=st.sampled_from(FILLS), n_sessions=st.integers(1, 7), bps=st.floats(0, 50))
def test_transition_equals_an_account_of_shares_and_currency(draw_target, seed, fill, n_sessions, bps):
    generator = np.random.default_rng(seed)
    panel = eventful_panel(120, seed=int(generator.integers(1000)))
    legs, cost_rate, t = market_legs(panel, fill, EXPENSIVE), bps * 1e-4, int(generator.integers(20, 60))
    shares = Shares(6)
    weights, equity = opening_account(6).weights[None, :], 1_000_000.0
    for _ in range(6):
        target = draw_target(generator)
        trade = generator.random() < 0.8
        period = holding_period(legs, np.array([t]), n_sessions)
        done = hold(weights, target[None, :], np.array([trade]), period, proportional_cost(cost_rate))
        values, fees = walk_shares(shares, panel, fill, (t, n_sessions), target if trade else None, cost_rate)
        np.testing.assert_allclose(equity * np.cumprod(done.session_growth[0]), values, rtol=1e-12)
        np.testing.assert_allclose(done.weights[0], shares.weights(), atol=1e-12)
        np.testing.assert_allclose(done.session_cash[0, -1], shares.weights()[-1], atol=1e-12)
        assert done.cost[0] == pytest.approx(fees, abs=1e-13)
        weights, equity, t = done.weights, values[-1], t + n_sessions


def walk_shares(shares, panel, fill, when, target, cost_rate):
    """Step the shares; returns values at each close, and the fee as a fraction of value."""
    (t, n_sessions), values, fee = when, [], 0.0

    def fill_order(session):
        shares.write_off(panel.delisted[session])
        value = shares.value
        paid = 0.0 if target is None else shares.rebalance(target, panel.tradable[session], cost_rate)
        return paid / value

    if fill == "same_close":
        fee = fill_order(t)
    for session in range(t + 1, t + n_sessions + 1):
        closing = shares.prices * (1.0 + panel.close_returns[session])
        shares.pay_interest((panel.sessions[session] - panel.sessions[session - 1]).astype(int), EXPENSIVE)
        if session == t + 1 and fill == "next_open":
            shares.prices = shares.prices * (1.0 + panel.overnight_returns[session])
            fee = fill_order(session)
        shares.prices = closing
        if session == t + 1 and fill == "next_close":
            fee = fill_order(session)
        values.append(shares.value)
    return values, fee


@given(seed=st.integers(0, 2**32 - 1), fill=st.sampled_from(FILLS), cost_rate=st.floats(0.0, 0.6))
def test_transition_stays_on_the_simplex_with_turnover_and_cost(seed, fill, cost_rate):
    generator = np.random.default_rng(seed)
    panel, n = eventful_panel(120, seed=seed % 7), 16
    period = holding_period(market_legs(panel, fill), generator.integers(0, 110, n), 5)
    start, target = generator.dirichlet(np.full(7, 0.2), (2, n))
    done = hold(start, target, generator.random(n) < 0.8, period, proportional_cost(cost_rate))
    for weights in (done.drifted, done.executed, done.weights):
        assert (weights >= 0.0).all()
        np.testing.assert_allclose(weights.sum(axis=1), 1.0, atol=1e-12)
    assert (done.session_cash >= 0.0).all()
    moved = np.where(panel.delisted[period.filled_at], 0.0, done.executed[:, :-1] - done.drifted[:, :-1])
    np.testing.assert_allclose(done.cost, np.minimum(1.0, cost_rate * np.abs(moved).sum(axis=1)), atol=1e-15)
    np.testing.assert_allclose(done.turnover, 0.5 * (np.abs(moved).sum(axis=1) + np.abs(moved.sum(axis=1))), atol=1e-15)
    np.testing.assert_allclose(done.trades.sum(axis=1), 0.0, atol=1e-15)
    np.testing.assert_array_equal(done.growth, done.session_growth.prod(axis=1))


@given(seed=st.integers(0, 2**32 - 1), bps=st.lists(st.integers(0, 500), min_size=2, max_size=2, unique=True))
def test_value_falls_strictly_with_cost(seed, bps):
    generator = np.random.default_rng(seed)
    panel = synthetic_panel(40, 4, seed=seed % 5)
    targets = generator.dirichlet(np.ones(5), 8)
    values = []
    for rate in sorted(bps):
        weights, value = opening_account(4).weights[None, :], 1.0
        for step, target in enumerate(targets):
            period = holding_period(market_legs(panel, "next_open"), np.array([4 * step]), 4)
            done = hold(weights, target[None, :], np.array([True]), period, proportional_cost(rate * 1e-4))
            weights, value = done.weights, value * done.growth[0]
        values.append(value)
    assert values[0] > values[1] > 0.0


def test_cost_of_half_the_traded_value_ruins_the_account():
    value, weights = 1.0, [1.0, 0.0, 0.0]
    for step in range(20):
        target = np.eye(3)[(step + 1) % 2]
        done = run(two_names([[0.0, 0.0]] * 3), "next_close", weights, target, 1, cost_rate=0.5)
        value, weights = value * done.growth[0], done.weights[0]
    assert value == 0.0
    assert np.isfinite(weights).all()


# --- debts and short positions -----------------------------------------------------------------------------------


@pytest.mark.parametrize("t", [-1, 158, 10_000])
def test_period_beyond_the_panel_is_refused(t):
    panel = eventful_panel()
    weights = np.eye(7)[[6]]
    period = holding_period(market_legs(panel, "next_close"), np.array([t]), 2)
    with pytest.raises(IndexError):
        hold(weights, weights, np.array([True]), period, no_cost)
    with pytest.raises(IndexError):
        hold_to_closes(weights, period)


def test_arrays_of_wrong_shape_are_refused():
    panel = eventful_panel()
    period = holding_period(market_legs(panel, "next_close"), np.array([3, 4]), 2)
    weights = np.eye(7)[[6, 6]]
    with pytest.raises(ValueError):
        hold(weights, weights[:, :-1], np.array([True, True]), period, no_cost)


def test_weights_at_closes_equal_the_transitions():
    panel, generator = eventful_panel(), np.random.default_rng(5)
    start, target = generator.dirichlet(np.ones(7), (2, 9))
    for n_sessions in (1, 4):
        period = holding_period(market_legs(panel, "next_open"), generator.integers(0, 150, 9), n_sessions)
        done = hold(start, target, np.ones(9, dtype=bool), period, COST)
        at_close = list(hold_to_closes(done.executed, period))
        assert len(at_close) == n_sessions
        np.testing.assert_array_equal(at_close[-1][0], done.weights)
        for session, (weights, growth) in enumerate(at_close):
            np.testing.assert_array_equal(weights[:, -1], done.session_cash[:, session])
            if session:
                np.testing.assert_array_equal(growth, done.session_growth[:, session])


# --- no look-ahead -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("fill", "t"), list(product(FILLS, (31, 45, 63))))
def test_transition_does_not_look_ahead(fill, t):
    panel, generator = eventful_panel(), np.random.default_rng(t)
    start, target = (generator.dirichlet(np.ones(7)) for _ in range(2))
    original = run(panel, fill, start, target, 5, cost_rate=0.001, t=t)
    for other in (with_other_future(panel, t + 5), cut(panel, t + 5)):
        changed = run(other, fill, start, target, 5, cost_rate=0.001, t=t)
        for name in vars(original):
            np.testing.assert_array_equal(getattr(original, name), getattr(changed, name))


@pytest.mark.parametrize("fill", ["next_open", "same_close"])
def test_executed_weights_do_not_depend_on_later_closes(fill):
    panel, t = eventful_panel(), 45
    later = panel.close_returns.copy()
    later[t + 1 :] = 0.5
    weights, target = np.full(7, 1 / 7), np.eye(7)[0]
    before = run(panel, fill, weights, target, 1, t=t)
    after = run(replace(panel, close_returns=later), fill, weights, target, 1, t=t)
    np.testing.assert_array_equal(before.executed, after.executed)
    np.testing.assert_array_equal(before.drifted, after.drifted)


def test_transition_of_many_portfolios_equals_single_ones():
    panel, generator, n = eventful_panel(), np.random.default_rng(0), 33
    start, target = generator.dirichlet(np.ones(7), (2, n))
    t, trade = generator.integers(0, 150, n), generator.random(n) < 0.8
    legs = market_legs(panel, "next_open")
    together = hold(start, target, trade, holding_period(legs, t, 9), COST)
    for i in range(n):
        row = slice(i, i + 1)
        period = holding_period(legs, t[row], 9)
        alone = hold(start[row], target[row], trade[row], period, COST)
        for name in (field for field, array in vars(together).items() if array is not None):
            np.testing.assert_array_equal(getattr(together, name)[row], getattr(alone, name))


def test_total_loss_leaves_finite_weights():
    done = run(two_names([[0.0, 0.0], [-1.0, 0.0]]), "same_close", [1.0, 0.0, 0.0], [1.0, 0.0, 0.0], 1, cost_rate=0.001)
    assert done.growth.tolist() == [0.0]
    assert done.weights.tolist() == [[0.0, 0.0, 1.0]]
