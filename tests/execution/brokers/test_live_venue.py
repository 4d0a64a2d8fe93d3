from dataclasses import replace

import numpy as np
import pytest

from nvtrader_pipelines.execution.brokers.account_spec import AlpacaAccountSpec
from nvtrader_pipelines.execution.brokers.broker import BrokerHoldings, BrokerTimeout, CashActivity, Receipt
from nvtrader_pipelines.execution.brokers.live_venue import UNPAID, LiveVenue
from nvtrader_pipelines.execution.errors import ExecutionError
from nvtrader_pipelines.execution.journal import Journal
from nvtrader_pipelines.execution.order_placement import TOO_LATE, RiskControls
from nvtrader_pipelines.execution.orders import Fill
from nvtrader_pipelines.execution.plan import Finding
from nvtrader_pipelines.execution.trader import Trader
from nvtrader_pipelines.portfolio.pipeline import RiskLimits, WeightPipeline
from tests.execution.desks import (
    ACCOUNT,
    Deployed,
    MemoryBook,
    MemoryLog,
    Switch,
    Wants,
    prices_of,
    rows_of_orders,
    spec_of,
    ticking,
)
from tests.execution.plans import record_decision
from tests.markets import synthetic_panel

PANEL = synthetic_panel(60, 4)
PRICES = prices_of(PANEL)
SOFT = Finding(rule="turnover_pct_warn", level="soft", figure=0.5, bound=0.2, sentence="turnover is high")


class Exchange:
    """A broker whose orders wait for the next open."""

    def __init__(self, cash=100_000.0, panel=PANEL):
        self.symbols, self.days, self.prices = panel.symbols, panel.sessions, prices_of(panel)
        self.shares, self.cash, self.orders, self.filled, self.gone = {}, cash, {}, {}, set()
        self.refuses, self.silent, self.closes, self.booked = set(), set(), None, {}

    def holdings(self):
        closes = dict(zip(self.symbols, self.closes, strict=True))
        equity = self.cash + sum(n * closes.get(name, 1.0) for name, n in self.shares.items())
        return BrokerHoldings(dict(self.shares), self.cash, equity)

    def submit(self, order):
        if order.symbol in self.silent:
            raise BrokerTimeout("no answer")
        if order.symbol in self.refuses:
            return Receipt(order.order_id, "", "rejected", "not tradable there")
        self.orders.setdefault(order.order_id, order)
        return Receipt(order.order_id, f"x-{order.symbol}", "accepted")

    def open_orders(self):
        waiting = self.orders.keys() - self.filled.keys() - self.gone
        return [Receipt(order_id, "x", "accepted") for order_id in sorted(waiting)]

    def cancel(self, order_id):
        self.gone.add(order_id)

    def fills(self, plan_id):
        return [fill for order_id, fill in self.filled.items() if order_id.startswith(plan_id)]

    def activities(self, after):
        return list(self.booked.values())

    def book(self, kind, amount, name="x"):
        """Move cash by no order."""
        self.cash += amount
        self.booked[name] = CashActivity(name, kind, amount)

    def open_market(self, t, but=(), late=()):
        """Fill what waits at the opens of session `t`, but names that end or wait on; another day, another close."""
        for receipt in self.open_orders():
            order = self.orders[receipt.order_id]
            if order.symbol in late:
                continue
            if order.symbol in but:
                self.gone.add(order.order_id)
                continue
            price = float(self.prices.opens[t, self.symbols.index(order.symbol)])
            signed = order.quantity if order.side == "buy" else -order.quantity
            self.shares[order.symbol] = self.shares.get(order.symbol, 0.0) + signed
            self.cash -= signed * price
            self.filled[order.order_id] = Fill(
                order_id=order.order_id,
                symbol=order.symbol,
                side=order.side,
                quantity=order.quantity,
                price=price,
                cost=0.0,
                session=self.days[t].item(),
                complete=True,
            )
        self.closes = self.prices.closes[t]


class Live:
    """An account at the exchange."""

    def __init__(self, *weights, findings=(), deployed=None, **spec):
        panel = deployed.panel if deployed else PANEL
        self.exchange, self.log, self.book, self.switch = Exchange(panel=panel), MemoryLog(), MemoryBook(), Switch()
        self.barred = {}
        self.exchange.closes = self.exchange.prices.closes[10]
        self.policy = Wants(*(weights or (0.2, 0.2, 0.2, 0.2, 0.2)))
        pipeline = WeightPipeline(risk_limits=RiskLimits(max_position=0.5))
        self.deployed = deployed or Deployed(panel, spec_of(pipeline=pipeline), self.policy)
        self.venue = LiveVenue(self.exchange, (panel, self.exchange.prices), self.book, AlpacaAccountSpec(**spec))
        controls = RiskControls(self.switch, lambda plan, t: findings, lambda session: self.barred, ticking(), "test")
        self.trader = Trader(self.deployed, self.venue, Journal(self.log, ACCOUNT), controls)

    def open(self, t=10):
        self.trader.open_at(t)
        self.trader.propose(t)
        self.trader.clear(t)
        return self

    def session(self, t, but=(), late=()):
        self.exchange.open_market(t, but, late)
        return self.evening(t)

    def evening(self, t):
        """What is done after the close of session `t`; nothing is decided where the account differs."""
        self.trader.execute(t)
        state = self.trader.settle(t)
        self.trader.update_outcomes()
        if self.trader.open_differences_error() is None:
            self.trader.propose(t)
            self.trader.clear(t)
        return state


def test_orders_are_placed_on_clearance_and_filled_at_the_next_open():
    live = Live().open()
    assert live.log.kinds() == ["proposed", "constructed", "cleared", *["placed"] * 4]
    assert live.trader.is_finished(10)
    state = live.session(11)
    assert live.log.kinds()[7:] == ["filled"] * 4
    assert state.differences == ()
    assert state.shares == pytest.approx(live.exchange.shares)
    assert state.value == pytest.approx(live.exchange.holdings().equity)
    assert sum(state.weights) == pytest.approx(1.0)
    assert state.turnover == pytest.approx(0.8, abs=0.02)


def test_quantities_use_broker_holdings_and_last_closes():
    live = Live(0.5, 0.1, 0.0, 0.0, 0.4).open()
    live.session(11)
    live.policy.weights = np.array([0.1, 0.25, 0.1, 0.0, 0.55])
    before = dict(live.exchange.shares)
    live.session(12)
    live.session(13)
    equity = live.exchange.holdings().equity
    plan = Journal(live.log, ACCOUNT).records()[-1].plan
    sides = []
    for order in list(live.exchange.orders.values())[2:]:
        j = PANEL.symbols.index(order.symbol)
        signed = order.quantity if order.side == "buy" else -order.quantity
        wanted = plan.target[j] * equity / PRICES.closes[13, j] - before.get(order.symbol, 0.0)
        assert signed == pytest.approx(wanted, rel=1e-9)
        sides.append(order.side)
    assert sides == ["sell", "buy", "buy"]


def test_rejected_order_is_cancelled_and_the_others_are_placed():
    live = Live()
    live.exchange.refuses = {"BBB"}
    live.open()
    state = live.session(11)
    assert {event.symbol for event in live.log.of("filled")} == {"AAA", "CCC", "DDD"}
    assert [(e.symbol, e.reason) for e in live.log.of("cancelled")] == [("BBB", "rejected: not tradable there")]
    (row,) = [row for row in rows_of_orders(live.log) if row["symbol"] == "BBB"]
    assert (row["status"], row["reason"], row["placed_at"]) == ("cancelled", "rejected: not tradable there", None)
    assert row["quantity"] > 0.0
    assert state.weights[1] == 0.0
    assert not state.differences


def test_broker_timeout_raises_and_a_retry_places_each_order_once():
    live = Live()
    live.exchange.silent = {"CCC"}
    live.trader.open_at(10)
    live.trader.propose(10)
    with pytest.raises(ExecutionError):
        live.trader.clear(10)
    assert [event.symbol for event in live.log.of("placed")] == ["AAA", "BBB"]
    assert not live.trader.is_finished(10)
    live.exchange.silent = set()
    live.trader.clear(10)
    assert [event.symbol for event in live.log.of("placed")] == ["AAA", "BBB", "CCC", "DDD"]
    assert len(live.exchange.orders) == 4


def test_unplaced_orders_expire_with_their_session():
    live = Live()
    live.exchange.silent = {"CCC"}
    live.trader.open_at(10)
    live.trader.propose(10)
    with pytest.raises(ExecutionError):
        live.trader.clear(10)
    live.exchange.silent = set()
    live.session(11)
    assert {event.symbol for event in live.log.of("filled")} == {"AAA", "BBB"}
    assert {(event.symbol, event.reason) for event in live.log.of("cancelled")} == {
        (symbol, TOO_LATE) for symbol in ("CCC", "DDD")
    }
    assert len(live.exchange.orders) == 2


def test_unfilled_order_is_cancelled_and_a_changed_holding_differs():
    live = Live().open()
    state = live.session(11, but={"AAA"})
    assert [(e.symbol, e.reason) for e in live.log.of("cancelled")] == [
        ("AAA", "it ended at the broker without a fill")
    ]
    assert not state.differences
    live.exchange.shares["BBB"] += 7.0  # by another hand
    (difference,) = live.session(12).differences
    assert difference.startswith("BBB: ")


@pytest.mark.parametrize("said", [True, False], ids=["said", "unsaid by an attempt that was killed"])
def test_fills_after_a_change_of_names_are_recorded(said):
    live = Live().open()
    if not said:
        live.log.kept = {key: event for key, event in live.log.kept.items() if event.kind != "placed"}
    wider = replace(synthetic_panel(60, 5), symbols=(*PANEL.symbols, "EEE"))
    live.exchange.open_market(11)
    live.venue = LiveVenue(live.exchange, (wider, prices_of(wider)), live.book, AlpacaAccountSpec())
    deployed = Deployed(wider, live.deployed.spec, Wants(0.2, 0.2, 0.2, 0.2, 0.1, 0.1), run_id="1" * 16)
    trader = Trader(deployed, live.venue, Journal(live.log, ACCOUNT), live.trader._controls)
    trader.execute(11)
    assert trader.settle(11).differences == ()
    assert {event.symbol for event in live.log.of("filled")} == set(PANEL.symbols)
    assert not [event for event in live.log.of("cancelled") if event.order_id]


@pytest.mark.parametrize(("error", "n_asked"), [(BrokerTimeout("no answer"), 3), (ExecutionError("refused"), 4)])
def test_cancel_open_tries_every_order_until_repeated_timeouts(error, n_asked):
    live, asked = Live().open(), []

    def cancel(order_id):
        asked.append(order_id)
        raise error

    live.exchange.cancel = cancel
    with pytest.raises(type(error)):
        live.venue.cancel_open("news")
    assert (len(asked), len(live.book.open_orders())) == (n_asked, 4)


def test_partial_fill_is_recorded_once_the_order_ends():
    live = Live().open()
    live.exchange.open_market(11)
    (order_id, whole), *_ = live.exchange.filled.items()
    part = whole.model_copy(update={"quantity": whole.quantity / 2.0, "complete": False})
    live.exchange.filled[order_id] = part
    live.exchange.shares[whole.symbol] -= part.quantity
    waiting = live.exchange.open_orders
    live.exchange.open_orders = lambda: [*waiting(), Receipt(order_id, "x", "accepted")]
    live.trader.execute(11)
    assert len(live.log.of("filled")) == 3
    live.exchange.open_orders = waiting
    live.trader.execute(11)
    assert live.book.filled == live.exchange.filled
    assert live.trader.settle(11).differences == ()


def test_waiting_plan_is_placed_on_approval_and_expires_without_it():
    live = Live(findings=(SOFT,)).open()
    assert not live.exchange.orders
    journal = Journal(live.log, ACCOUNT)
    (record,) = journal.records()
    event = record_decision(record, "approved", record.plan.session, ("ann", ""), ticking()())
    live.trader._journal.append(event)
    assert not live.trader.is_finished(10)
    live.trader.clear(10)
    assert len(live.exchange.orders) == 4
    expired = Live(findings=(SOFT,)).open()
    expired.session(11)
    assert not expired.exchange.orders
    assert "waiting" in expired.log.of("cancelled")[0].reason


@pytest.mark.parametrize(
    "changed",
    [
        {"cash": -1.0},
        {"cash": np.nan},
        {"shares": {"AAA": np.nan}},
        {"shares": {"AAA": -3.0}},
        {"shares": {"ZZZ": 3.0}},
        {"cash": 0.0},
    ],
)
def test_invalid_broker_holdings_raise(changed):
    live = Live()
    vars(live.exchange).update(changed)
    with pytest.raises(ExecutionError):
        live.trader.open_at(10)
    assert not live.book.states


def test_banned_purchase_is_never_sent_to_the_broker():
    live = Live()
    live.barred = {"BBB": "it is restricted"}
    live.open()
    (event,) = live.log.of("cancelled")
    assert (event.symbol, event.reason, event.detail["order"]["side"]) == ("BBB", "it is restricted", "buy")
    assert {order.symbol for order in live.exchange.orders.values()} == {"AAA", "CCC", "DDD"}
    assert live.trader.is_finished(10)
    assert live.session(11).differences == ()


@pytest.mark.parametrize("weights", [(0.5, 0.0, 0.0, -0.2, 0.7), (1.0, 0.5, 0.0, 0.0, -0.5)], ids=["short", "debt"])
def test_short_or_levered_plan_is_refused_before_any_order(weights):
    limits = RiskLimits(max_position=1.0, max_short=1.0, max_gross=2.0, max_net=2.0, min_net=-2.0)
    live = Live(deployed=Deployed(PANEL, spec_of(pipeline=WeightPipeline(risk_limits=limits)), Wants(*weights)))
    with pytest.raises(ExecutionError):
        live.open()
    assert not live.exchange.orders
    assert not live.book.placed


def test_plan_without_a_placeable_order_is_cancelled():
    live = Live()
    live.barred = dict.fromkeys(PANEL.symbols, "it is restricted")
    live.open()
    assert [event.reason for event in live.log.of("cancelled")][-1] == "none of its orders could be placed"
    assert not live.exchange.orders
    assert live.trader.is_finished(10)


def test_buys_leave_a_cash_reserve_for_higher_opens():
    live = Live(0.25, 0.25, 0.25, 0.25, 0.0).open()
    spent = sum(order.quantity * order.quote for order in live.exchange.orders.values())
    assert spent == pytest.approx(0.98 * 100_000.0)
    live.policy.weights = np.array([0.5, 0.3, 0.1, 0.1, 0.0])
    live.session(11)
    for t in (12, 13, 14, 15, 16):
        assert live.session(t).weights[-1] >= 0.0


def test_order_sizes_follow_the_account_spec():
    live = Live(0.2, 0.2, 0.001, 0.2, 0.399, whole_shares=True, min_order=500.0).open()
    orders = list(live.exchange.orders.values())
    assert [order.symbol for order in orders] == ["AAA", "BBB", "DDD"]
    assert all(order.quantity == int(order.quantity) for order in orders)


def test_buy_without_cash_is_recorded_as_unpaid():
    live = Live(0.5, 0.5, 0.0, 0.0, 0.0)
    live.open()
    live.session(11)
    live.policy.weights = np.array([0.5, 0.0, 0.5, 0.0, 0.0])
    holdings = live.exchange.holdings
    live.exchange.holdings = lambda: replace(holdings(), to_spend=0.0)
    for t in (12, 13):
        live.session(t)
    assert ("CCC", UNPAID) in [(event.symbol, event.reason) for event in live.log.of("cancelled")]
    assert {order.side for order in list(live.exchange.orders.values())[2:]} == {"sell"}
