import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nvtrader_pipelines.envs.accounts import Accounts
from nvtrader_pipelines.envs.spec import EnvSpec
from tests.contracts.families import defaults, simplex
from tests.panels import cut, eventful_panel, with_other_future

PANEL = eventful_panel()
COSTS = pytest.mark.parametrize("model", defaults("cost_model"), ids=lambda model: model.kind)


def random_trades(seed, n=20):
    generator = np.random.default_rng(seed)
    return (simplex(generator, n, 6) - simplex(generator, n, 6))[:, :-1], generator.integers(0, 160, n)


@COSTS
@given(seed=st.integers(0, 2**32 - 1))
def test_cost_is_finite_and_not_negative(model, seed):
    cost = model.start(PANEL)(*random_trades(seed))
    assert cost.shape == (20,)
    assert np.isfinite(cost).all()
    assert (cost >= 0.0).all()


@COSTS
def test_no_trade_costs_nothing(model):
    assert model.start(PANEL)(np.zeros((3, 6)), np.array([0, 40, 159])).tolist() == [0.0] * 3


@COSTS
@given(seed=st.integers(0, 2**32 - 1), factor=st.floats(1.0, 10.0))
def test_order_costs_at_least_as_much_as_its_parts(model, seed, factor):
    cost, (trades, filled_at) = model.start(PANEL), random_trades(seed)
    assert (cost(factor * trades, filled_at) >= factor * cost(trades, filled_at) * (1.0 - 1e-12)).all()


@COSTS
def test_buying_and_selling_cost_the_same(model):
    cost, (trades, filled_at) = model.start(PANEL), random_trades(0)
    np.testing.assert_array_equal(cost(trades, filled_at), cost(-trades, filled_at))


@COSTS
def test_costs_of_many_accounts_equal_single_ones(model):
    cost, (trades, filled_at) = model.start(PANEL), random_trades(1)
    alone = [cost(trades[[i]], filled_at[[i]])[0] for i in range(20)]
    assert cost(trades, filled_at).tolist() == alone


@COSTS
@pytest.mark.parametrize("session", [1, 31, 41, 49, 63, 110])
def test_cost_does_not_look_at_the_session_of_the_fill(model, session):
    trades, filled_at = random_trades(2, session + 1)[0], np.arange(session + 1)
    known = model.start(PANEL)(trades, filled_at)
    for other in (with_other_future(PANEL, session - 1), cut(PANEL, session)):
        np.testing.assert_array_equal(model.start(other)(trades, filled_at), known)


@COSTS
@pytest.mark.parametrize("fill", ["next_open", "next_close", "same_close"])
def test_cost_of_an_account_does_not_look_ahead(model, fill):
    spec = EnvSpec(turnover_cost_bps=0.0, costs=(model,), fill=fill)

    def paid(panel):
        accounts, generator = Accounts(panel, spec, 3, t=40), np.random.default_rng(3)
        steps = [accounts.trade(simplex(generator, 3, 6), np.ones(3, dtype=bool), 4) for _ in range(5)]
        return np.array([step.transition.cost for step in steps]), accounts.equity

    cost, equity = paid(PANEL)
    assert (cost > 0.0).all()
    for other in (with_other_future(PANEL, 60), cut(PANEL, 60)):
        for found, expected in zip(paid(other), (cost, equity), strict=True):
            np.testing.assert_array_equal(found, expected)
