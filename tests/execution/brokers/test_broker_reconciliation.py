import datetime as dt
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nvtrader_pipelines.execution.book import AccountState
from nvtrader_pipelines.execution.brokers.broker import CashActivity, Receipt
from nvtrader_pipelines.execution.brokers.broker_reconciliation import cash_by_kind, unitize
from nvtrader_pipelines.execution.brokers.live_venue import REPLACED
from nvtrader_pipelines.execution.errors import ExecutionError
from nvtrader_pipelines.execution.journal import Journal
from tests.execution.brokers.test_live_venue import PRICES, Live
from tests.execution.desks import ACCOUNT, rows_of_orders

OPENED = AccountState(
    session=dt.date(2024, 1, 2),
    symbols=("A", "cash"),
    weights=(0.0, 1.0),
    equity=1.0,
    peak=1.0,
    recent_returns=(0.0,),
    capital=1e5,
    kept_at="there",
    shares={},
    prices={},
    policy="p",
    run_id="r",
    spec_hash="s",
    counted={},
)


def records(live):
    return {each.plan.plan_id: each for each in Journal(live.log, ACCOUNT).records()}


def part(live, symbol, share):
    """Fill a part of what was filled whole, of an order that works on; what makes it whole."""
    order_id = next(order_id for order_id, fill in live.exchange.filled.items() if fill.symbol == symbol)
    whole, others = live.exchange.filled[order_id], live.exchange.open_orders
    filled = whole.model_copy(update={"quantity": share * whole.quantity, "complete": False})
    live.exchange.filled[order_id] = filled
    live.exchange.shares[symbol] -= whole.quantity - filled.quantity
    live.exchange.cash += (whole.quantity - filled.quantity) * whole.price
    live.exchange.open_orders = lambda: [*others(), Receipt(order_id, "x", "accepted")]

    def fill_the_rest():
        live.exchange.open_orders, live.exchange.filled[order_id] = others, whole
        live.exchange.shares[symbol] += whole.quantity - filled.quantity
        live.exchange.cash -= (whole.quantity - filled.quantity) * whole.price

    return order_id, fill_the_rest


def test_late_fill_is_recorded_and_explains_holdings():
    live = Live().open()
    live.exchange.cancel = lambda order_id: None  # it is asked, and too late
    for t in (11, 12, 13):
        assert not live.session(t, late={"AAA"}).differences
    first, second = records(live)
    assert (records(live)[first].status, records(live)[second].status) == ("placed", "placed")
    state = live.session(14)
    assert state.differences == ()
    assert state.shares == pytest.approx(live.exchange.shares)
    assert state.weights[0] == pytest.approx(0.2, abs=0.02)  # the later plan has not bought it once more
    assert first in {event.plan_id for event in live.log.of("filled") if event.symbol == "AAA"}
    assert {record.status for record in records(live).values()} == {"filled"}
    assert live.book.open_orders() == []
    assert live.book.filled == live.exchange.filled
    assert {row["status"] for row in rows_of_orders(live.log)} == {"filled"}


def test_open_order_is_cancelled_for_the_next_plan():
    live = Live().open()
    for t in (11, 12, 13):
        live.session(t, late={"AAA"})
    first, second = records(live)
    (bought,) = [order for key, order in live.exchange.orders.items() if key == f"{second}-AAA"]
    assert bought.quantity * bought.quote == pytest.approx(0.2 * 100_000.0, rel=0.05)
    assert live.session(14).differences == ()
    assert [(e.plan_id, e.symbol, e.reason) for e in live.log.of("cancelled")] == [(first, "AAA", REPLACED)]
    assert records(live)[first].status == "filled"


def test_partial_fill_of_an_open_order_counts_once():
    live = Live().open()
    live.exchange.open_market(11)
    _, fill_the_rest = part(live, "BBB", 0.5)
    live.exchange.cancel = lambda order_id: None
    live.evening(11)
    for t in (12, 13):
        live.session(t, late={"BBB"})
    bought = [order for order in live.exchange.orders.values() if order.symbol == "BBB"][1:]
    assert sum(order.quantity * order.quote for order in bought) < 1_000.0  # drift, and no half of it once more
    assert live.session(14, late={"BBB"}).differences == ()
    fill_the_rest()
    assert live.session(15).differences == ()


def test_partial_fill_at_the_close_is_expected_once():
    live = Live().open()
    live.exchange.open_market(11)
    order_id, fill_the_rest = part(live, "BBB", 0.25)
    state = live.evening(11)
    assert state.differences == ()
    assert state.working == {order_id: pytest.approx(live.exchange.shares["BBB"])}
    assert not [event for event in live.log.of("filled") if event.symbol == "BBB"]
    turnover = state.turnover
    fill_the_rest()
    state = live.session(12)
    assert (state.differences, state.working) == ((), {})
    assert [event.order_id for event in live.log.of("filled") if event.symbol == "BBB"] == [order_id]
    assert state.shares == pytest.approx(live.exchange.shares)
    assert state.turnover == pytest.approx(0.15, abs=0.01)
    assert turnover + state.turnover == pytest.approx(0.8, abs=0.02)


def test_fill_reported_after_its_shares_resolves_the_difference():
    live = Live().open()
    live.exchange.open_market(11)
    waiting = live.exchange.open_orders
    lagging = [Receipt(order_id, "x", "accepted") for order_id in live.exchange.filled]
    told, live.exchange.filled = live.exchange.filled, {}
    live.exchange.open_orders = lambda: lagging
    assert len(live.evening(11).differences) == 4
    error = live.trader.open_differences_error()
    assert error is not None
    assert error.differences[0].startswith("AAA: 0 shares expected")
    live.exchange.filled, live.exchange.open_orders = told, waiting
    live.trader.update_outcomes()
    assert live.trader.open_differences_error() is None
    assert len(live.log.of("filled")) == 4
    for t in (12, 13, 14):
        assert live.session(t).differences == ()


@pytest.mark.parametrize("amount", [60_000.0, -15_000.0], ids=["deposit", "withdrawal"])
def test_cash_flow_is_not_a_return(amount):
    still, moved = Live().open(), Live().open()
    for live in (still, moved):
        live.session(11)
    moved.exchange.book("flow", amount)
    before, left, state = moved.book.last(), still.session(12), moved.session(12)
    assert state.net_return == pytest.approx(left.net_return, rel=1e-12)
    assert state.equity == pytest.approx(left.equity, rel=1e-12)
    assert state.recent_returns == pytest.approx(left.recent_returns)
    assert (state.flow, left.flow) == (amount, 0.0)
    assert state.value == pytest.approx(left.value + amount, rel=1e-12) == moved.exchange.holdings().equity
    assert sum(state.weights) == pytest.approx(1.0)
    after = moved.session(13)
    assert after.flow == 0.0
    assert after.net_return == pytest.approx(after.value / state.value - 1.0, rel=1e-9)
    assert before.capital != state.capital == after.capital


def test_fees_and_dividends_are_returns_of_their_booking_session():
    free, charged = Live().open(), Live().open()
    for live in (free, charged):
        live.session(11)
    charged.exchange.book("fee", -20.0, "f")
    charged.exchange.book("income", 50.0, "d")
    before, left, state = charged.book.last().value, free.session(12), charged.session(12)
    assert state.net_return == pytest.approx(left.net_return + 30.0 / before, abs=1e-12)
    assert (state.cost, state.income, state.flow) == (pytest.approx(20.0 / before), 50.0, 0.0)
    assert charged.session(13).cost == 0.0


def test_activities_before_the_opening_do_not_count():
    live = Live()
    live.exchange.book("flow", 25_000.0)
    live.open()
    assert live.book.last().capital == 125_000.0
    assert live.session(11).flow == 0.0


@given(
    growth=st.lists(st.floats(-0.3, 0.3), min_size=1, max_size=8),
    flows=st.lists(st.floats(-0.5, 3.0), min_size=8, max_size=8),
)
def test_cash_flows_do_not_change_equity(growth, flows):
    state = OPENED
    for earned, flow in zip(growth, flows, strict=False):
        paid = flow * state.value
        value = state.value * (1.0 + earned) + paid
        equity, capital = unitize(state, value, paid)
        state = state.model_copy(update={"equity": equity, "capital": capital})
        assert state.value == pytest.approx(value, rel=1e-9)
    assert state.equity == pytest.approx(np.prod([1.0 + earned for earned in growth]), rel=1e-9)


def split_ratio(live, *, held, bars):
    """A split of AAA overnight: the shares the broker makes of one, and what its bars are divided by, all of them."""
    live.exchange.shares["AAA"] *= held
    prices = replace(PRICES, **{name: array.copy() for name, array in vars(PRICES).items()})
    for array in (prices.opens, prices.closes, prices.last_closes):
        array[:, 0] /= bars
    live.venue._prices = live.exchange.prices = prices
    live.exchange.closes = prices.closes[12]


@pytest.mark.parametrize(("held", "bars"), [(2.0, 2.0), (1.5, 1.5), (20.0, 20.0), (0.1, 0.1), (2.0, 2.03), (1.0, 1.02)])
def test_split_in_broker_and_bars_is_neither_difference_nor_return(held, bars):
    live, plain = Live().open(), Live().open()
    for each in (live, plain):
        each.session(11, late={"BBB"})
        each.exchange.open_market(12)  # what is filled of other names on the day
    split_ratio(live, held=held, bars=bars)
    state = live.evening(12)
    assert state.differences == ()
    assert state.shares["AAA"] == pytest.approx(held * plain.evening(12).shares["AAA"])
    assert live.session(13).differences == ()


def test_purchase_on_the_day_of_a_split_is_not_split():
    live = Live().open()
    live.session(11)
    live.policy.weights = np.array([0.3, 0.2, 0.2, 0.2, 0.1])
    live.session(12)
    live.session(13)
    held = live.exchange.shares["AAA"]
    split_ratio(live, held=3.0, bars=3.0)
    assert live.session(14).differences == ()
    assert live.exchange.shares["AAA"] > 3.0 * held


@pytest.mark.parametrize(("held", "bars"), [(2.0, 1.0), (2.0, 3.0), (1.97, 2.0), (1.9, 2.0), (0.0, 2.0), (1.02, 1.02)])
def test_split_missing_in_the_bars_is_a_difference(held, bars):
    live = Live().open()
    live.session(11)
    live.exchange.open_market(12)
    split_ratio(live, held=held, bars=bars)
    assert [each.partition(":")[0] for each in live.evening(12).differences] == ["AAA"]


def test_deposit_above_the_account_value_raises():
    with pytest.raises(ExecutionError):
        unitize(OPENED, 90.0, 100.0)


def test_cash_activity_counts_once_net_of_corrections():
    deposit, other = CashActivity("a", "flow", 100.0), CashActivity("b", "flow", 5.0)
    assert cash_by_kind(OPENED, [deposit, other])["flow"] == 105.0
    known = OPENED.model_copy(update={"counted": {"a": 100.0}})
    assert cash_by_kind(known, [deposit, other])["flow"] == 5.0
    assert cash_by_kind(known, [CashActivity("a", "flow", 0.0)])["flow"] == -100.0
    unasked = OPENED.model_copy(update={"counted": None})  # of a book that was kept before activities were
    assert cash_by_kind(unasked, [deposit]) == {"flow": 0.0, "fee": 0.0, "income": 0.0}
