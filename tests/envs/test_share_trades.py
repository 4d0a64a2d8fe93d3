"""The action of whole shares, against an account in shares and cash."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from pydantic import ValidationError

from nvtrader_pipelines.envs.account import Account
from nvtrader_pipelines.envs.actions import ShareTradesAction
from nvtrader_pipelines.envs.simulation import PortfolioSimulation
from nvtrader_pipelines.envs.spec import EnvSpec
from nvtrader_pipelines.experiments.spec import ExperimentSpec
from nvtrader_pipelines.policies.learned import open_policy
from tests.markets import synthetic_panel
from tests.panels import DELISTED, GAPPY, INELIGIBLE, LATE, STEADY, eventful_panel
from tests.policies.small_learners import AGENT, WINDOW, bits, card_of

RATE, HMAX, CAPITAL = 0.001, 40, 50_000.0
ACTION = ShareTradesAction(hmax=HMAX, capital=CAPITAL)
SPEC = EnvSpec(lookback=5, episode_len=120, rebal_freq=1, fill="same_close", action=ACTION)
LEVELS = np.array([30.0, 90.0, 250.0, 60.0, 40.0, 15.0])  # prices before the first session


def with_prices(panel):
    """The panel with adjusted closes as a feature, and the last known prices of the names (T, N)."""
    marks = LEVELS[: len(panel.symbols)] * np.cumprod(1.0 + panel.close_returns, axis=0)
    features = np.dstack([panel.features, marks * panel.eligible])
    return replace(panel, features=features, feature_names=(*panel.feature_names, "adjusted_close")), marks


def eventful_market():
    """Names with a gap, a late listing, a delisting, and two that are priced but not eligible for a while."""
    panel = eventful_panel(260)
    eligible = panel.eligible.copy()
    eligible[:, INELIGIBLE] = True
    eligible[100:130, STEADY] = eligible[150:160, INELIGIBLE] = False
    return with_prices(replace(panel, eligible=eligible))


PANEL, MARKS = eventful_market()
FLAT, FLAT_MARKS = with_prices(synthetic_panel(200, 3))


class ShareOracle:
    """Shares and cash by FinRL's order of trades, and the environment's cost.

    FinRL's fee is rate * |change| of shares at their price. The environment takes its fee F from every position, so
    that a trade ends at shares' weights of V - F: F = rate * sum |s' p V / (V - F) - s p|, more by about rate * F.
    A name without a price is a position that is not traded, and pays F / V of its shares.
    """

    def __init__(self):
        self.cash, self.shares = CAPITAL, [0.0] * len(LEVELS)

    def value(self, t):
        return self.cash + sum(s * p for s, p in zip(self.shares, MARKS[t], strict=True))

    def trade(self, action, t):
        orders, marks, cash, after = [int(x) for x in action * np.float32(HMAX)], MARKS[t], self.cash, [*self.shares]
        ranks = np.argsort(orders, kind="stable").tolist()
        for j in [*(j for j in ranks if orders[j] < 0), *(j for j in reversed(ranks) if orders[j] > 0)]:
            if not PANEL.eligible[t, j]:
                continue
            price = marks[j] * (1.0 + RATE if orders[j] > 0 else 1.0 - RATE)
            after[j] = max(round(after[j] + orders[j]), 0)
            if orders[j] > 0:
                after[j] = max(min(after[j], int(self.shares[j] + cash / price)), self.shares[j])
            cash -= (after[j] - self.shares[j]) * price
        while self.settle(after, t)[0] < 0.0:
            after[next(j for j in ranks if after[j] > self.shares[j])] -= 1
        self.cash, self.shares = self.settle(after, t)
        for j in np.flatnonzero(PANEL.delisted[t]):
            self.cash, self.shares[j] = self.cash + self.shares[j] * marks[j], 0.0

    def settle(self, after, t):
        """Cash and shares after the fee of holding the given shares."""
        marks, value, is_priced, fee = MARKS[t], self.value(t), PANEL.tradable[t], 0.0
        for _ in range(20 if after != self.shares else 0):
            changes = abs(value / (value - fee) * np.array(after) * marks - np.array(self.shares) * marks)
            fee = RATE * sum(changes[is_priced])
        paid = [s if priced else s * (1.0 - fee / value) for s, priced in zip(after, is_priced, strict=True)]
        return value - fee - sum(s * p for s, p in zip(paid, marks, strict=True)), paid


def simulate(panel, n, start, spec=SPEC):
    simulation = PortfolioSimulation(panel, spec, n)
    simulation.accounts.open(list(range(n)), [start] * n)
    return simulation


def shares_of(accounts, marks):
    """Shares (n, N) of the names at the accounts' sessions."""
    return accounts.weights[:, :-1] * accounts.equity[:, None] * CAPITAL / marks[accounts.t]


@pytest.mark.slow
def test_accounts_equal_those_in_shares_and_cash():
    simulation, oracles, generator = simulate(PANEL, 3, 0), [ShareOracle() for _ in range(3)], np.random.default_rng(0)
    accounts, steps = simulation.accounts, 230
    n_short_of_cash, fractions = 0, 0.0
    for t in range(steps):
        wave = 0.4 * np.sin(t / 15.0) + 0.1
        actions = np.clip(generator.normal(wave, 0.6, (3, 6)), -1.0, 1.0).astype(np.float32)
        actions[generator.random(3) < 0.1] = 0.0
        simulation.step(actions)
        for oracle, action in zip(oracles, actions, strict=True):
            oracle.trade(action, t)
            n_short_of_cash += oracle.cash < LEVELS.min()
        shares = shares_of(accounts, MARKS)
        expected = np.array([oracle.shares for oracle in oracles])
        whole = [j for j in range(6) if j not in {GAPPY, DELISTED}]
        np.testing.assert_array_equal(np.rint(shares[:, whole]), expected[:, whole])
        np.testing.assert_allclose(shares, expected, rtol=0.0, atol=1e-6)
        fractions = max(fractions, np.abs(expected - np.rint(expected)).max())
        np.testing.assert_allclose(accounts.equity * CAPITAL, [oracle.value(t + 1) for oracle in oracles], rtol=1e-9)
        assert min(oracle.cash for oracle in oracles) >= 0.0
    assert n_short_of_cash > 50
    assert fractions > 1e-4
    assert (expected[:, LATE] > 0).any()


@given(
    actions=arrays(np.float32, (12, 3), elements=st.floats(-1.0, 1.0, width=32)),
    bps=st.sampled_from([0.0, 10.0, 500.0]),
)
def test_shares_are_whole_and_cash_is_never_negative(actions, bps):
    action = ShareTradesAction(hmax=150, capital=CAPITAL)
    simulation = simulate(FLAT, 1, 20, SPEC.model_copy(update={"action": action, "turnover_cost_bps": bps}))
    for row in actions:
        step = simulation.step(row[None])
        shares = shares_of(simulation.accounts, FLAT_MARKS)
        np.testing.assert_allclose(shares, np.rint(shares), rtol=0.0, atol=1e-6)
        assert step.account.transition.executed.min() >= 0.0


def test_action_map_refuses_what_it_cannot_trade():
    cash = np.tile(np.eye(4)[-1], (2, 1))
    actions = np.array([[np.nan, 0.5, 0.0], [0.0, 0.5, 0.0]])
    weights = SPEC.start_action(FLAT)(actions, np.array([50, 50]), cash, np.ones(2))
    assert np.isnan(weights).all(axis=1).tolist() == [True, False]
    with pytest.raises(IndexError):
        SPEC.start_action(FLAT)(actions, np.array([50, 200]), cash, np.ones(2))
    with pytest.raises(ValueError):
        SPEC.start_action(FLAT)(np.zeros((2, 4)), np.array([50, 50]), cash, np.ones(2))
    with pytest.raises(ValueError):
        EnvSpec(action=ACTION).start_action(FLAT)


def experiment(**changes):
    parts = {"turnover_cost_bps": 10.0, "fill": "same_close", "action": {"kind": "share_trades"}}
    document = {"name": "x", "environment": {**parts, **changes.pop("environment", {})}}
    return ExperimentSpec.model_validate({**document, "market": {"features": [{"kind": "adjusted_close"}]}, **changes})


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"environment": {"fill": "next_open"}}, "environment.fill"),
        ({"environment": {"costs": [{"kind": "volatility_spread"}]}}, "environment.costs"),
        ({"market": {"features": []}}, "market.features"),
        ({"pipeline": {"allocator": {"kind": "equal_weight"}}}, "pipeline.allocator"),
    ],
)
def test_experiment_that_leaves_no_whole_shares_is_refused(changes, field):
    assert experiment(environment={"action": {"kind": "StockTradingEnv"}}).environment.action == ShareTradesAction()
    with pytest.raises(ValidationError) as refusal:
        experiment(**changes)
    assert field in str(refusal.value)


def test_capital_below_the_cheapest_share_of_a_training_session_is_refused():
    least = FLAT_MARKS.min(axis=1)
    action = ShareTradesAction(capital=float(least[20:81].max()))
    action.require_training(FLAT, [(20, 80)])
    with pytest.raises(ValueError):
        ShareTradesAction(capital=0.999 * action.capital).require_training(FLAT, [(20, 80)])


def test_trained_policy_repeats_and_decides_as_its_environment():
    fits = [AGENT.train(FLAT, SPEC, WINDOW, 0) for _ in range(2)]
    assert bits(fits[0]) == bits(fits[1])
    policy = open_policy(*(card_of(FLAT, fits[0], SPEC), fits[0].tensors), FLAT)
    simulation = PortfolioSimulation(FLAT, SPEC, 1, scaler=fits[0].scaler)
    simulation.accounts.open([0], [150])
    n_traded = 0
    for t in range(150, 170):
        accounts = simulation.accounts
        held = Account(accounts.weights[0].copy(), float(accounts.equity[0]), float(accounts.peak[0]))
        decision = policy.decide(FLAT, t, held)
        step = simulation.step(decision.action[None])
        np.testing.assert_array_equal(step.target[0], decision.target)
        n_traded += int(step.account.transition.turnover[0] > 0.0)
    assert n_traded > 5
