"""Whole plans at Alpaca: from a policy's wish to orders, fills and holdings, by its REST API."""

import datetime as dt
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from pydantic import SecretStr
from tenacity import wait_none

from nvtrader_pipelines.execution.brokers.account_spec import AlpacaAccountSpec
from nvtrader_pipelines.execution.brokers.alpaca import AlpacaBroker
from nvtrader_pipelines.execution.brokers.live_venue import LiveVenue
from nvtrader_pipelines.execution.errors import ExecutionError
from nvtrader_pipelines.execution.journal import Journal
from nvtrader_pipelines.execution.order_placement import RiskControls
from nvtrader_pipelines.execution.trader import Trader
from nvtrader_pipelines.portfolio.pipeline import RiskLimits, WeightPipeline
from tests.execution.brokers.alpaca_stub import KEYS, AlpacaStub, serving
from tests.execution.desks import ACCOUNT, Deployed, MemoryBook, MemoryLog, Switch, Wants, prices_of, spec_of, ticking
from tests.markets import synthetic_panel

PANEL = synthetic_panel(60, 4)
PRICES = prices_of(PANEL)
PLACE = "POST /v2/orders"


class Account:
    """A trader whose broker is the stub, on a market of four names."""

    def __init__(self, stub: AlpacaStub) -> None:
        spec = AlpacaAccountSpec(base_url=stub.url, retries=1)
        broker = replace(AlpacaBroker.connect(spec, *map(SecretStr, KEYS)), backoff=wait_none())
        self.stub, self.log, self.policy = stub, MemoryLog(), Wants(0.4, 0.3, 0.0, 0.2, 0.1)
        limits = WeightPipeline(risk_limits=RiskLimits(max_position=0.5))
        deployed = Deployed(PANEL, spec_of(pipeline=limits), self.policy)
        controls = RiskControls(Switch(), lambda plan, t: (), lambda session: {}, ticking(), "test")
        venue = LiveVenue(broker, (PANEL, PRICES), MemoryBook(), spec)
        self.trader = Trader(deployed, venue, Journal(self.log, ACCOUNT), controls)
        self._market_at(10, PRICES.closes)

    def decide(self, t) -> None:
        self.trader.propose(t)
        self.trader.clear(t)

    def session(self, t):
        """The exchange opens and closes; then what was filled is found, and the next plan made."""
        self._market_at(t, PRICES.opens)
        self.stub.clock = dt.datetime.combine(PANEL.sessions[t].item(), dt.time(), dt.UTC) - dt.timedelta(hours=2)
        self.stub.open_exchange()
        self.stub.is_open = False
        self._market_at(t, PRICES.closes)
        self.trader.execute(t)
        state = self.trader.settle(t)
        self.decide(t)
        return state

    def _market_at(self, t, prices) -> None:
        self.stub.prices.update(zip(PANEL.symbols, map(float, prices[t]), strict=True))


@pytest.fixture
def account() -> Iterator[Account]:
    with serving(AlpacaStub()) as stub:
        own = Account(stub)
        own.trader.open_at(10)
        yield own


def told(account, kind) -> set[str]:
    return {event.symbol for event in account.log.of(kind)}


def test_plan_fills_at_the_open_and_holdings_are_as_expected(account):
    account.decide(10)
    state = account.session(11)
    assert told(account, "placed") == told(account, "filled") == {"AAA", "BBB", "DDD"}
    assert state.differences == ()
    assert state.shares == pytest.approx(account.stub.positions)
    account.policy.weights = np.array([0.1, 0.3, 0.08, 0.1, 0.42])
    for t in (12, 13, 14):
        assert account.session(t).differences == ()
    sides = [order["side"] for order in account.stub.orders[3:]]
    assert sides == sorted(sides, reverse=True)  # sells before buys
    assert set(sides) == {"buy", "sell"}
    equity = float(account.stub.answer("GET", "/v2/account", {}, {})[1]["equity"])
    held = [account.stub.positions.get(name, 0.0) * account.stub.prices[name] / equity for name in PANEL.symbols]
    assert held == pytest.approx(account.policy.weights[:-1], abs=0.05)


def test_unanswered_order_is_placed_once_beside_a_rejected_one(account):
    account.stub.faults[PLACE].extend(["dropped"])
    account.stub.refused["BBB"] = 403, "insufficient buying power"
    account.decide(10)
    state = account.session(11)
    assert sorted(order["symbol"] for order in account.stub.orders) == ["AAA", "DDD"]
    assert told(account, "filled") == {"AAA", "DDD"}
    assert [event.reason for event in account.log.of("cancelled")] == ["rejected: insufficient buying power"]
    assert state.differences == ()


def test_plan_resumes_after_a_timeout_between_two_orders(account):
    account.trader.propose(10)
    account.stub.faults[PLACE].extend(["dropped"])
    account.stub.faults["GET /v2/orders:by_client_order_id"].extend(["unavailable"])
    with pytest.raises(ExecutionError):
        account.trader.clear(10)
    account.trader.clear(10)
    assert sorted(order["symbol"] for order in account.stub.orders) == ["AAA", "BBB", "DDD"]
    assert account.session(11).differences == ()


def test_negative_cash_raises_before_any_order(account):
    account.stub.cash, account.stub.positions = -500.0, {"AAA": 50.0}
    with pytest.raises(ExecutionError):
        account.decide(10)
    assert account.stub.orders == []


@pytest.mark.parametrize("multiplier", [1, 2])
def test_buys_use_cash_only(account, multiplier):
    account.stub.multiplier = multiplier
    account.policy.weights = np.array([0.5, 0.5, 0.0, 0.0, 0.0])
    account.decide(10)
    state = account.session(11)
    account.policy.weights = np.array([0.5, 0.0, 0.5, 0.0, 0.0])
    before = len(account.stub.orders)
    t = 11
    while len(account.stub.orders) == before:
        state = account.session(t := t + 1)
    cash = state.weights[-1] * state.value
    made = account.stub.orders[before:]
    assert made[0]["side"] == "sell"
    bought = sum(float(o["qty"]) * account.stub.prices[o["symbol"]] for o in made if o["side"] == "buy")
    assert 0.0 < bought <= cash
    assert not [event for event in account.log.of("cancelled") if "rejected" in event.reason]
