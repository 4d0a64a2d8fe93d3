"""Engines hold the same money for the same decisions, and behind one result."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from nvtrader_pipelines.components.component import members
from nvtrader_pipelines.envs.actions import LeveredSimplexAction
from nvtrader_pipelines.envs.spec import EnvSpec
from nvtrader_pipelines.evaluation import engines
from nvtrader_pipelines.evaluation.engines import BacktestEngine, EventDriven, LimitReversion, Vectorized, Walk
from nvtrader_pipelines.evaluation.engines.engine_account import CURVE, ORDERS
from nvtrader_pipelines.policies.baselines import BuyAndHold, EqualWeight, MinimumVariance
from nvtrader_pipelines.portfolio.costs import SquareRootImpact, VolatilitySpread
from tests.evaluation.engines.markets import FREE, dated, hand_made
from tests.evaluation.test_independent_engine import CAPITAL, PANEL, equity_in_bt, weights_path
from tests.markets import synthetic_panel, with_values
from tests.panels import eventful_panel

ENGINES = [member() for member in members(BacktestEngine)]
AT_FILL = EventDriven(timing="next_open")
COSTLY = EnvSpec(rebal_freq=3, turnover_cost_bps=25.0, costs=(VolatilitySpread(), SquareRootImpact()))
MARKET = synthetic_panel(80, 4)


def simplex(panel, seed=0):
    return np.random.default_rng(seed).dirichlet(np.full(len(panel.symbols) + 1, 0.4), len(panel.sessions))


def assert_equal(result, expected, atol=1e-12):
    assert result.curve["session"].equals(expected.curve["session"])
    for column in CURVE.names()[1:]:
        np.testing.assert_allclose(result.curve[column], expected.curve[column], rtol=0.0, atol=atol, err_msg=column)
    np.testing.assert_allclose(result.weights, expected.weights, rtol=0.0, atol=atol)


@pytest.mark.slow
@given(
    seed=st.integers(0, 2**32 - 1),
    freq=st.integers(1, 7),
    costs=st.sampled_from([(), (VolatilitySpread(),), (VolatilitySpread(), SquareRootImpact())]),
    fill=st.sampled_from(["next_open", "next_close"]),
    opens=st.booleans(),
)
def test_three_engines_hold_equal_money_for_equal_weights(seed, freq, costs, fill, opens):
    panel = synthetic_panel(60, 4, seed % 7, opens=opens)
    environment = EnvSpec(rebal_freq=freq, turnover_cost_bps=seed % 100, costs=costs, fill=fill)
    weights = dated(panel, simplex(panel, seed))
    first, *others = (each.run(panel, environment, weights, (2, 50)) for each in (Walk(), Vectorized(), AT_FILL))
    for other in others:
        assert_equal(other, first)
        names = ("decided_on", "session", "symbol", "limit", "status", "reason")
        assert other.orders.select(names).equals(first.orders.select(names))
        np.testing.assert_allclose(other.orders["change"], first.orders["change"], rtol=0.0, atol=1e-12)


@pytest.mark.slow
def test_engines_agree_on_gaps_and_delistings_without_costs():
    panel = eventful_panel()
    walked, shares = (engine.run(panel, FREE, dated(panel, simplex(panel))) for engine in (Walk(), AT_FILL))
    np.testing.assert_allclose(shares.curve["equity"], walked.curve["equity"], rtol=1e-12)
    assert shares.orders.filter(status="ended")["reason"].unique().to_list() == ["no price in this session"]


@pytest.mark.parametrize("agent", [EqualWeight(), BuyAndHold(), MinimumVariance()], ids=lambda agent: agent.kind)
def test_policy_holds_equal_money_on_shares_and_on_weights(agent):
    walked, shares = (engine.run(MARKET, COSTLY, agent.start(), (5, 79)) for engine in (Walk(), AT_FILL))
    assert_equal(shares, walked)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
def test_event_driven_equals_bt_which_keeps_shares(seed):
    decided, weights = weights_path(seed)
    decided, weights = decided[decided < len(PANEL.sessions) - 2], weights[decided < len(PANEL.sessions) - 2]
    target = np.full((len(PANEL.sessions), weights.shape[1] + 1), np.nan)
    target[decided, :-1] = weights
    account = AT_FILL.open(PANEL, EnvSpec(turnover_cost_bps=25.0))
    for row in target[:-1]:
        account.trade(None if np.isnan(row[0]) else row, 1)
    expected = equity_in_bt(decided + 1, weights, 25.0)[1:]
    np.testing.assert_allclose(account.result().curve["equity"], expected, rtol=1e-9)
    assert AT_FILL.capital == CAPITAL


@pytest.mark.parametrize("engine", ENGINES, ids=lambda engine: engine.kind)
def test_member_runs_as_it_steps_with_the_result_of_the_family(engine):
    weights = simplex(MARKET)
    result = engine.run(MARKET, COSTLY, dated(MARKET, weights), (4, 60))
    assert isinstance(engine, engines.BaseBacktestEngine)
    assert (result.curve.schema, result.orders.schema) == (CURVE, ORDERS)
    assert result.curve["session"].to_list() == MARKET.sessions[5:61].tolist()
    np.testing.assert_allclose(result.weights.sum(axis=1), 1.0)
    np.testing.assert_allclose((1.0 + result.curve["net_return"]).cum_prod(), result.curve["equity"], rtol=1e-12)
    assert result.curve["cost"].sum() > 0.0
    account, steps = engine.open(MARKET, COSTLY, 4), []
    assert account.account.weights.tolist() == [0.0, 0.0, 0.0, 0.0, 1.0]
    for t in range(4, 60, 3):
        steps += account.trade(weights[t], min(3, 60 - t))
    assert_equal(account.result(), result)
    assert [step.equity for step in steps] == account.result().curve["equity"].to_list()
    assert account.account.equity == steps[-1].equity
    assert account.account.recent_returns[-1] == pytest.approx(steps[-1].net_return)


@pytest.mark.parametrize("engine", ENGINES, ids=lambda engine: engine.kind)
def test_member_holds_without_a_target(engine):
    account = engine.open(MARKET, COSTLY)
    account.trade(np.array([0.5, 0.0, 0.0, 0.0, 0.5]), 1)
    account.trade(None, 4)
    first, *others = account.result().curve["turnover"]
    assert first == pytest.approx(0.5, rel=0.01)  # the event-driven default sizes at the close before
    assert others == [0.0] * 4
    with pytest.raises(ValueError, match="finite"):
        account.trade(np.full(5, np.nan), 1)


def test_walk_records_levered_closes_after_their_cap():
    environment = EnvSpec(action=LeveredSimplexAction(), turnover_cost_bps=5.0)
    account = Walk().open(MARKET, environment)
    account.trade(np.array([1.0, 1.0, 0.0, 0.0, -1.0]), 10)
    result = account.result()
    np.testing.assert_allclose(result.weights[:, -1], result.curve["cash"], atol=1e-15)
    np.testing.assert_allclose(account.account.weights, result.weights[-1], atol=1e-15)


def test_account_that_lost_all_stays_in_cash():
    panel = with_values(hand_made(*[[(100, 100, 100, 100)]] * 3), "close_returns", 1, -1.0)
    for engine in (Walk(), AT_FILL):
        result = engine.run(panel, FREE, dated(panel, [[1.0, 0.0]] * 4))
        assert result.curve["equity"].to_list() == [0.0, 0.0, 0.0]
        assert result.weights.tolist() == [[0.0, 1.0]] * 3


@pytest.mark.parametrize(
    ("engine", "decider", "environment", "window"),
    [
        (Vectorized(), EqualWeight().start(), FREE, None),
        (Vectorized(), LimitReversion(), FREE, None),
        (Walk(), LimitReversion(), FREE, None),
        (EventDriven(), LimitReversion(), EnvSpec(action=LeveredSimplexAction()), None),
        (Vectorized(), dated(MARKET, simplex(MARKET)), EnvSpec(action=LeveredSimplexAction()), None),
        (EventDriven(), LimitReversion(), EnvSpec(fill="same_close"), None),
        (Walk(), EqualWeight().start(), FREE, (5, 80)),
        (EventDriven(), LimitReversion(), FREE, (5, 5)),
        (EventDriven(first_closes={"ZZZ": 10.0}), LimitReversion(), FREE, None),
    ],
)
def test_run_that_an_engine_cannot_do_is_refused(engine, decider, environment, window):
    with pytest.raises(ValueError, match=r"choose|set|remove"):
        engine.run(MARKET, environment, decider, window)


def test_family_says_which_engines_take_an_agent():
    assert [engine.kind for engine in ENGINES if engine.supports_rl_injection] == ["walk", "event_driven"]
    assert TypeAdapter(BacktestEngine).validate_python({"kind": "vectorised"}) == Vectorized()
