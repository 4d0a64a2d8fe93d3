"""Actions that borrow or sell short: caps for every action, and what a close above its cap costs."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from nvtrader_pipelines.envs.actions import LeveredSimplexAction, LongShortAction
from nvtrader_pipelines.envs.dynamics import drift, hold, holding_period, market_legs
from nvtrader_pipelines.envs.simulation import PortfolioSimulation
from nvtrader_pipelines.envs.spec import EnvSpec
from nvtrader_pipelines.portfolio.costs import proportional_cost
from nvtrader_pipelines.portfolio.financing import Financing, GrossFinancing
from tests.envs.two_names import FREE, two_names
from tests.markets import synthetic_panel
from tests.panels import eventful_panel

PANEL = eventful_panel()
LOGITS = st.lists(st.floats(-9.0, 9.0), min_size=12, max_size=12).map(np.array)
BASE = synthetic_panel(60, 2)


def weights_of(action, raw, t=80, panel=PANEL):
    return action.start(panel)(raw[None, :], np.array([t]))[0]


@given(raw=LOGITS, t=st.integers(0, 159), base=st.floats(0.0, 1.0), intraday=st.floats(2.0, 4.0))
def test_gross_of_a_levered_simplex_is_between_its_base_and_its_cap(raw, t, base, intraday):
    action = LeveredSimplexAction(base=base, intraday_cap=intraday)
    weights = weights_of(action, raw[:7], t)
    wanted = base + (intraday - base) / (1.0 + np.exp(-np.clip(raw[6], -5.0, 5.0)))
    assert weights[:-1].min() >= 0.0
    assert weights[:-1].sum() <= wanted + 1e-12
    assert abs(weights.sum() - 1.0) <= 1e-12
    if PANEL.eligible[t].all():
        np.testing.assert_allclose(weights[:-1].sum(), wanted, rtol=1e-12)


@given(raw=LOGITS, t=st.integers(0, 159), gross=st.floats(0.1, 4.0))
def test_gross_and_net_of_long_short_are_within_the_cap(raw, t, gross):
    weights = weights_of(LongShortAction(gross=gross), raw, t)
    assert np.abs(weights[:-1]).sum() <= gross + 1e-12
    assert abs(weights[:-1].sum()) <= gross + 1e-12
    assert abs(weights.sum() - 1.0) <= 1e-12


def test_equal_logits_of_long_and_short_are_cash():
    assert weights_of(LongShortAction(), np.ones(12)).tolist() == [0.0] * 6 + [1.0]


def test_one_high_logit_of_a_side_is_nearly_the_whole_gross():
    raw = np.full(4, -5.0)
    raw[2] = 5.0
    np.testing.assert_allclose(weights_of(LongShortAction(gross=1.5), raw, 10, BASE), [-1.5, 0.0, 2.5], atol=3e-4)


def test_caps_that_do_not_ascend_are_refused():
    with pytest.raises(ValidationError):
        LeveredSimplexAction(close_cap=3.0, intraday_cap=2.0)


def capped(returns, target, *, close_cap, rate=0.001, financing=FREE, n_sessions=2, tradable=None, fill="next_open"):
    panel = two_names(returns, np.zeros_like(returns), tradable=tradable)
    legs = market_legs(panel, fill, financing, close_cap=close_cap)
    cash = np.array([[0.0, 0.0, 1.0]])
    period = holding_period(legs, np.array([0]), n_sessions)
    return hold(cash, np.array([target]), np.array([True]), period, proportional_cost(rate))


def test_close_above_the_cap_is_scaled_down_at_the_cost_of_its_trades():
    done = capped([[0.0, 0.0]] * 3, [2.4, 0.6, -2.0], close_cap=2.0)
    np.testing.assert_allclose(done.exposures.before_cap[0], [3.0, 2.0], rtol=1e-15)
    np.testing.assert_allclose(done.exposures.gross[0], [2.0, 2.0], rtol=1e-15)
    np.testing.assert_allclose(done.exposures.cap_turnover[0], [1.0, 0.0])
    np.testing.assert_allclose(done.exposures.cap_cost[0], [0.001, 0.0])
    np.testing.assert_allclose(done.session_growth[0], [(1.0 - 0.003) * (1.0 - 0.001), 1.0], rtol=1e-15)
    np.testing.assert_allclose(done.weights[0], [1.6, 0.4, -1.0], rtol=1e-15)


@pytest.mark.parametrize("fill", ["next_close", "same_close"])
def test_fill_at_a_close_keeps_the_cap_without_a_second_trade(fill):
    done = capped([[0.0, 0.0]] * 3, [2.4, -0.6, -0.8], close_cap=2.0, fill=fill)
    np.testing.assert_allclose(done.executed[0], [1.6, -0.4, -0.2], rtol=1e-14)
    np.testing.assert_allclose(done.exposures.before_cap[0], [2.0, 2.0], rtol=1e-14)
    assert done.exposures.cap_turnover.max() < 1e-12
    np.testing.assert_allclose(done.cost, 0.002, rtol=1e-12)


@pytest.mark.parametrize(
    ("target", "executed"), [([0.0, 1.0, 0.0], [0.5, 0.5, 0.0]), ([0.5, -0.5, 1.0], [0.5, -0.5, 1.0]),
                             ([0.0, -1.0, 2.0], [0.5, -0.5, 1.0]), ([1.0, -1.0, 1.0], [0.5, -1.0, 1.5])]
)  # fmt: skip
def test_name_without_a_price_leaves_short_positions_the_rest_of_the_gross(target, executed):
    panel = two_names([[0.0, 0.0]] * 2, tradable=[[True, True], [False, True]])
    period = holding_period(market_legs(panel, "next_close", FREE, tracks_exposure=True), np.array([0]), 1)
    done = hold(np.array([[0.5, 0.0, 0.5]]), np.array([target]), np.array([True]), period, proportional_cost(0.0))
    np.testing.assert_allclose(done.executed[0], executed, atol=1e-15)


def test_name_without_a_price_keeps_its_weight_at_the_cap():
    tradable = [[True, True], [True, True], [True, False]]
    done = capped([[0.0, 0.0], [0.0, 0.0], [0.5, 0.0]], [1.0, 1.0, -1.0], close_cap=2.0, rate=0.0, tradable=tradable)
    np.testing.assert_allclose(done.exposures.before_cap[0], [2.0, 2.5 / 1.5])  # a gain of the account lowers its gross
    fallen = capped([[0.0, 0.0], [0.0, 0.0], [-0.5, 0.0]], [1.0, 1.0, -1.0], close_cap=2.0, rate=0.0, tradable=tradable)
    np.testing.assert_allclose(fallen.exposures.before_cap[0], [2.0, 3.0])
    np.testing.assert_allclose(fallen.weights[0], [0.0, 2.0, -1.0], atol=1e-15)


def test_share_counts_at_gross_two_and_with_shorts_give_the_same_equity():
    """Own shares, debt and interest in money, session by session."""
    generator, n = np.random.default_rng(3), 40
    panel = two_names(generator.normal(0.0, 0.02, (n, 2)), np.zeros((n, 2)))  # opens are the closes before
    financing, rate, cap = Financing(margin_rate=0.065, borrow_fee=0.02), 0.001, 1.9
    prices = 50.0 * np.cumprod(1.0 + panel.close_returns, axis=0)
    days = np.diff(panel.sessions.astype("datetime64[D]").astype(int))
    legs = market_legs(panel, "next_open", financing, close_cap=cap)
    weights, equity, shares, cash = np.array([[0.0, 0.0, 1.0]]), 1.0, np.zeros(2), 1.0
    for t in range(n - 1):
        gross = 2.0 if t % 2 else 1.7
        target = np.append(gross * np.array([0.8, -0.2] if t % 3 else [0.5, 0.5]), 0.0)
        target[-1] = 1.0 - target[:-1].sum()
        done = hold(weights, target[None, :], np.array([True]), holding_period(legs, np.array([t]), 1),
                    proportional_cost(rate))  # fmt: skip
        weights, equity = done.weights, equity * done.session_growth[0, 0]
        short = np.maximum(0.0, -shares * prices[t]).sum()
        cash -= days[t] / 360 * (0.065 * max(0.0, -cash) + 0.02 * short)
        for is_cap in (False, True):
            price = prices[t + is_cap]  # the order fills at the open
            worth = shares @ price + cash
            held = shares * price / worth
            wanted = held * min(1.0, cap / np.abs(held).sum()) if is_cap else target[:-1]
            left = worth * (1.0 - rate * np.abs(wanted - held).sum())
            shares, cash = wanted * left / price, (1.0 - wanted.sum()) * left
        np.testing.assert_allclose(equity, shares @ prices[t + 1] + cash, rtol=1e-9)
    assert equity != 1.0


@given(seed=st.integers(0, 2**32 - 1), more=st.floats(0.01, 1.0), fill=st.sampled_from(["next_open", "same_close"]))
def test_value_falls_as_a_rate_rises_and_financing_is_never_negative(seed, more, fill):
    generator, panel = np.random.default_rng(seed), eventful_panel(120, seed=seed % 5)
    names = generator.normal(0.2, 0.5, (8, 6))
    start, target = (np.hstack([rows, 1.0 - rows.sum(axis=1, keepdims=True)]) for rows in (names, names[::-1]))
    at, all_trade = generator.integers(0, 110, 8), np.ones(8, bool)
    for cheap, dear in (
        (Financing(), Financing(margin_rate=0.05 + more, borrow_fee=0.005 + more)),
        (GrossFinancing(), GrossFinancing(rate=0.065 + more)),
    ):
        few, many = (
            hold(start, target, all_trade, holding_period(market_legs(panel, fill, f, tracks_exposure=True), at, 5),
                 proportional_cost(0.0))
            for f in (cheap, dear)
        )  # fmt: skip
        assert (few.exposures.financing >= 0.0).all()
        assert (many.growth <= few.growth + 1e-15).all()
        pays = (few.exposures.before_cap > 1.0 + 1e-9).any(axis=1) & (few.growth > 0.0) & (cheap.kind != "margin_loan")
        assert (many.growth < few.growth)[pays].all()


def test_financing_of_a_fill_at_the_close_is_charged_after_its_cost():
    financing, target = Financing(margin_rate=3.6), np.array([[1.0, 0.5, -0.5]])
    legs = market_legs(BASE, "same_close", financing, tracks_exposure=True)
    period = holding_period(legs, np.array([10]), 1)
    done = hold(np.array([[0.0, 0.0, 1.0]]), target, np.array([True]), period, proportional_cost(0.01))
    days = int((BASE.sessions[11] - BASE.sessions[10]) / np.timedelta64(1, "D"))
    np.testing.assert_allclose(done.exposures.financing, [[0.985 * days * 0.01 * 0.5]], rtol=1e-12)


def test_financing_on_gross_above_one_charges_short_positions_too():
    panel = two_names([[0.0, 0.0]] * 3)
    legs = market_legs(panel, "next_close", GrossFinancing(rate=0.36), tracks_exposure=True)
    held = np.array([[1.0, -0.5, 0.5]])
    done = hold(held, held, np.array([False]), holding_period(legs, np.array([0]), 1), proportional_cost(0.0))
    np.testing.assert_allclose(done.exposures.financing[0], 3 * 0.5 * 0.36 / 360, rtol=1e-14)
    np.testing.assert_allclose(done.session_growth[0], 1.0 - done.exposures.financing[0], rtol=1e-14)


def test_drift_of_a_session_equals_a_later_session_of_hold_with_a_cap():
    generator = np.random.default_rng(5)
    legs = market_legs(PANEL, "next_open", Financing(), close_cap=1.4)
    names = generator.normal(0.2, 0.4, (10, 6))
    start = np.hstack([names, 1.0 - names.sum(axis=1, keepdims=True)])
    at, cost = generator.integers(50, 100, 10), proportional_cost(0.002)
    whole = hold(start, start, np.zeros(10, bool), holding_period(legs, at, 2), cost)
    first = hold(start, start, np.zeros(10, bool), holding_period(legs, at, 1), cost)
    later = drift(first.weights, holding_period(legs, at + 1, 1), cost)
    np.testing.assert_array_equal(later.weights, whole.weights)
    np.testing.assert_array_equal(later.session_growth[:, 0], whole.session_growth[:, 1])
    np.testing.assert_array_equal(later.exposures.financing[:, 0], whole.exposures.financing[:, 1])
    np.testing.assert_array_equal(later.exposures.cap_cost[:, 0], whole.exposures.cap_cost[:, 1])


def test_tracked_exposures_of_a_long_only_account_are_those_of_its_cash():
    generator, n = np.random.default_rng(6), 12
    start, target = generator.dirichlet(np.ones(7), (2, n))
    at, all_trade = generator.integers(0, 100, n), np.ones(n, bool)
    plain, tracked = (
        hold(start, target, all_trade, holding_period(legs, at, 5), proportional_cost(0.001))
        for legs in (market_legs(PANEL, "next_open"), market_legs(PANEL, "next_open", close_cap=2.0))
    )
    np.testing.assert_array_equal(plain.session_growth, tracked.session_growth)
    np.testing.assert_array_equal(plain.weights, tracked.weights)
    for name in plain.exposures._fields:
        np.testing.assert_allclose(getattr(plain.exposures, name), getattr(tracked.exposures, name), atol=1e-15)


def test_account_that_loses_all_ends_at_zero_and_says_so():
    from nvtrader_pipelines.envs.portfolio_env import PortfolioEnv

    returns = np.zeros((60, 2))
    returns[10:] = -0.3
    panel = two_names(returns)
    env = PortfolioEnv(panel, EnvSpec(action=LeveredSimplexAction(close_cap=4.0), fill="next_close", rebal_freq=1))
    env.reset(seed=0)
    for _ in range(60):
        _, reward, terminated, _, info = env.step(np.full(3, 5.0))
        if terminated:
            break
    assert terminated
    assert info["equity"] == 0.0
    assert info["termination"] == "ruin"
    assert np.isfinite(reward)
    assert info["weights"].tolist() == [0.0, 0.0, 1.0]


def test_steps_of_many_levered_accounts_equal_single_ones():
    spec = EnvSpec(action=LongShortAction(gross=3.0), rebal_freq=4, financing=GrossFinancing())
    raw = np.random.default_rng(0).normal(0.0, 2.0, (5, 6, 12))
    together, alone = PortfolioSimulation(PANEL, spec, 6), [PortfolioSimulation(PANEL, spec, 1) for _ in range(6)]
    for i, one in enumerate(alone):
        together.accounts.open([i], [20 + 7 * i])
        one.accounts.open([0], [20 + 7 * i])
    for actions in raw:
        step = together.step(actions)
        for i, one in enumerate(alone):
            single = one.step(actions[[i]])
            assert single.reward[0] == step.reward[i]
            assert single.account.path[0].tolist() == step.account.path[i].tolist()
