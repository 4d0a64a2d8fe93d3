from dataclasses import replace

import numpy as np
import pytest

from nvtrader_pipelines.execution.errors import ExecutionError
from nvtrader_pipelines.execution.journal import Journal
from nvtrader_pipelines.policies.policy import Decision
from tests.execution.desks import ACCOUNT, prices_of
from tests.execution.test_trader import PANEL, account
from tests.panels import GAP, GAPPY, eventful_panel


def test_halted_name_is_not_traded_and_recorded():
    panel = eventful_panel()
    names = len(panel.symbols)
    wanted = np.append(np.full(names, 0.0), 0.4)
    wanted[[0, GAPPY]] = 0.3
    traded = account(*wanted, panel=panel).open(26)
    traded.session(27)
    traded.deployed.worker._policy.weights = np.append(np.eye(names)[0] * 0.5, 0.5)
    traded.trade(28, GAP[0] + 1)
    halted = [event for event in traded.log.of("cancelled") if event.symbol == panel.symbols[GAPPY]]
    assert halted
    assert "no price on" in halted[0].reason
    assert traded.book.last().weights[GAPPY] > 0.2
    assert not any(state.differences for state in traded.book.states.values())


def test_targeted_name_without_any_price_raises_before_placing():
    traded = account(0.2, 0.2, 0.2, 0.2, 0.2).open(10)
    traded.prices.last_closes[:, 2] = np.nan
    panel = traded.deployed.panel
    tradable = panel.tradable.copy()
    tradable[:, 2] = False
    traded.deployed.panel = replace(panel, tradable=tradable)
    traded.trader = traded.hired()
    with pytest.raises(ExecutionError):
        traded.trader.execute(11)
    assert not traded.book.placed
    assert not traded.log.of("placed")


@pytest.mark.parametrize("price", [np.nan, 0.0, -1.0, np.inf])
def test_invalid_price_raises_before_any_write(price):
    prices = prices_of(PANEL)
    prices.opens[11, 1] = price
    traded = account(prices=prices).open(10)
    before = dict(traded.log.kept)
    with pytest.raises(ExecutionError):
        traded.session(11)
    assert traded.log.kept == before
    assert not traded.book.placed
    assert traded.book.last().session == PANEL.sessions[10].item()


def test_settle_raises_for_an_invalid_close():
    prices = prices_of(PANEL)
    traded = account(prices=prices).open(10)
    traded.session(11)
    prices.closes[12, 3] = np.nan
    with pytest.raises(ExecutionError):
        traded.session(12)
    assert traded.book.last().session == PANEL.sessions[11].item()


def test_settle_raises_for_returns_that_are_not_finite():
    broken = PANEL.close_returns.copy()
    traded = account().open(10)
    traded.session(11)
    broken[12, 0] = np.nan
    traded.deployed.panel = replace(PANEL, close_returns=broken)
    traded.trader = traded.hired()
    with pytest.raises(ValueError):
        traded.session(12)
    assert traded.book.last().session == PANEL.sessions[11].item()


def test_propose_raises_for_weights_that_are_not_finite():
    class Broken:  # behind no pipeline, which would refuse them itself
        def decide(self, panel, t, account):
            return Decision(target=np.full(5, np.nan))

    traded = account()
    traded.trader.open_at(10)
    traded.deployed.worker = Broken()
    with pytest.raises(ExecutionError):
        traded.trader.propose(10)
    assert not traded.log.kept


def test_orders_raise_for_a_plan_of_an_earlier_session():
    traded = account().open(10)
    (record,) = Journal(traded.log, ACCOUNT).records()
    traded.trade(11, 12)
    with pytest.raises(ExecutionError):
        traded.broker.orders(record.plan, 12)
    with pytest.raises(ExecutionError):
        traded.broker.orders(record.plan, 10)


def test_simulated_account_in_debt_raises():
    traded = account().open(10)
    state = traded.book.states.popitem()[1]
    weights = (0.5, 0.6, 0.0, 0.0, -0.1)
    traded.book.settle(state.model_copy(update={"weights": weights}))
    with pytest.raises(ExecutionError):
        traded.session(11)


def test_holding_outside_the_market_raises():
    traded = account().open(10)
    state = traded.book.states.popitem()[1]
    held = {"symbols": ("ZZZ", *state.symbols[1:]), "weights": (0.5, 0.0, 0.0, 0.0, 0.5)}
    traded.book.settle(state.model_copy(update=held))
    with pytest.raises(ExecutionError):
        traded.session(11)
