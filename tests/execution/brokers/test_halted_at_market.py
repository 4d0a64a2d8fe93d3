"""The kill switch found engaged at any step of an account whose orders wait for the open."""

from tests.execution.brokers.test_live_venue import PANEL, PRICES, Live


def test_the_switch_keeps_the_second_order_from_the_broker_and_the_first_is_cancelled_before_the_market_opens():
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
    assert live.trader.finished(10)
    live.exchange.open_market(11)
    live.trader.execute(11)
    assert not live.exchange.filled
    assert live.trader.settle(11).weights[-1] == 1.0


def test_an_order_that_still_waits_is_cancelled_where_the_switch_is_found_as_the_policy_is_to_be_asked():
    live = Live().open()
    live.exchange.open_market(11, late={"AAA"})
    live.trader.execute(11)
    live.trader.settle(11)
    live.switch.after = live.switch.read
    assert live.trader.propose(11) is None
    assert not live.exchange.open_orders()


def test_what_the_open_filled_before_a_halt_was_found_is_told_as_filled():
    live = Live().open()
    live.switch.after = live.switch.read
    state = live.session(11)
    assert {event.symbol for event in live.log.of("filled")} == set(PANEL.symbols)
    assert not live.log.of("cancelled")
    assert live.book.filled == live.exchange.filled
    assert state.differences == ()


def test_a_session_whose_plan_the_switch_stopped_whole_has_nothing_left_to_do():
    live = Live()
    live.trader.open_at(10)
    live.trader.propose(10)
    live.switch.after = live.switch.read
    live.trader.clear(10)
    assert [event.order_id for event in live.log.of("cancelled")] == [None]
    assert not live.exchange.orders
    assert live.trader.finished(10)


def test_an_order_that_the_broker_has_not_cancelled_yet_stays_open_and_its_fill_is_told():
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
