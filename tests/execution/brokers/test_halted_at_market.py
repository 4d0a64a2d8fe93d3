"""The kill switch found engaged at any step of an account whose orders wait for the open."""

from tests.execution.brokers.test_live_venue import PANEL, PRICES, Live


def test_halt_between_two_live_orders_cancels_the_first():
    live = Live()
    live.trader.open_at(10)
    live.trader.propose(10)
    live.switch.after = live.switch.read + 2
    live.trader.clear(10)
    assert [order.symbol for order in live.exchange.orders.values()] == ["AAA"]
    assert {(event.symbol, event.reason) for event in live.log.of("cancelled")} == {
        (symbol, "stopped by a test") for symbol in PANEL.symbols
    }
    assert [event.session for event in live.log.of("halted")] == [PANEL.sessions[10].item()]
    assert live.trader.is_finished(10)
    live.exchange.open_market(11)
    live.trader.execute(11)
    assert not live.exchange.filled
    assert live.trader.settle(11).weights[-1] == 1.0


def test_halt_found_at_proposal_cancels_open_orders():
    live = Live().open()
    live.exchange.open_market(11, late={"AAA"})
    live.trader.execute(11)
    live.trader.settle(11)
    live.switch.after = live.switch.read
    assert live.trader.propose(11) is None
    assert not live.exchange.open_orders()


def test_fills_before_a_halt_are_recorded():
    live = Live().open()
    live.switch.after = live.switch.read
    state = live.session(11)
    assert {event.symbol for event in live.log.of("filled")} == set(PANEL.symbols)
    assert not live.log.of("cancelled")
    assert live.book.filled == live.exchange.filled
    assert state.differences == ()


def test_session_of_a_halted_plan_is_finished():
    live = Live()
    live.trader.open_at(10)
    live.trader.propose(10)
    live.switch.after = live.switch.read
    live.trader.clear(10)
    assert [event.order_id for event in live.log.of("cancelled")] == [None]
    assert not live.exchange.orders
    assert live.trader.is_finished(10)


def test_order_with_an_unconfirmed_cancellation_stays_open():
    live = Live().open()
    live.exchange.cancel = lambda order_id: None  # it is asked, and has not done it
    live.switch.after = live.switch.read
    live.exchange.closes = PRICES.closes[11]
    live.trader.execute(11)
    assert len(live.book.open_orders()) == 4
    assert not live.log.of("cancelled")
    live.exchange.open_market(11)
    live.trader.execute(11)
    assert live.trader.settle(11).differences == ()
    assert len(live.log.of("filled")) == 4
