"""An account at a broker that is killed between any two of its durable effects."""

import numpy as np
import pytest

from nvtrader_pipelines.execution.brokers.account_spec import AlpacaAccountSpec
from nvtrader_pipelines.execution.brokers.live_venue import LiveVenue
from nvtrader_pipelines.execution.journal import Journal
from nvtrader_pipelines.execution.order_placement import RiskControls
from nvtrader_pipelines.execution.trader import Trader
from tests.execution.brokers.test_live_venue import PANEL, PRICES, Live
from tests.execution.desks import ACCOUNT, Fused, ticking

pytestmark = pytest.mark.slow

WANTED = {10: (0.2, 0.2, 0.2, 0.2, 0.2), 13: (0.4, 0.1, 0.3, 0.1, 0.1)}
LAST = 15


class Killed(BaseException):
    """What ends an attempt, as a signal would."""


class Fuse:
    """Kills right before or right after the n-th effect."""

    def __init__(self, n=0, early=False):
        self.n, self.early, self.burned = n, early, 0

    def burn(self, effect, *given):
        self.burned += 1
        if self.burned == self.n and self.early:
            raise Killed
        result = effect(*given)
        if self.burned == self.n:
            raise Killed
        return result


def hired(live, fuse):
    """A trader who knows only what is kept, and whose effects burn the fuse."""
    venue = LiveVenue(Fused(live.exchange, fuse), (PANEL, PRICES), Fused(live.book, fuse), AlpacaAccountSpec())
    controls = RiskControls(live.switch, lambda plan, t: (), lambda session: {}, ticking(), "test")
    journal, kept = Journal(Fused(live.log, fuse), ACCOUNT), live.book.index()
    journal.require_book_covers_audit(kept)
    journal.require_audit_covers_book(kept, late=True)
    return Trader(live.deployed, venue, journal, controls)


def step(live, trader, t):
    """One evening, whole."""
    trader.open_at(t)
    live.policy.weights = np.array(WANTED.get(t, live.policy.weights))
    trader.execute(t)
    trader.settle(t)
    trader.propose(t)
    trader.clear(t)


def traded(fuse, *, again_at_once=True, halted=None, late=()):
    """An account that is gone on with in the evening it was killed in, or in the next one."""
    live = Live()
    trader = hired(live, fuse)
    for t in range(min(WANTED), LAST + 1):
        live.exchange.open_market(t, late={"AAA"} if t in late else ())
        if t == halted:
            live.switch.after = live.switch.read
        try:
            step(live, trader, t)
        except Killed:
            trader = hired(live, Fuse())
            if again_at_once:
                step(live, trader, t)
    return live


def every_kill(**options):
    """What came of an account for every effect, killed before it and after it."""
    whole = Fuse()
    traded(whole, **options)
    assert whole.burned > 10
    for n in range(1, whole.burned + 1):
        for early in (True, False):
            yield (n, early), traded(Fuse(n, early), **options)


@pytest.mark.slow
def test_killed_live_step_is_finished_by_the_next_attempt():
    undisturbed = traded(Fuse())
    assert len(undisturbed.exchange.orders) == 8
    for killed, live in every_kill():
        assert live.exchange.orders == undisturbed.exchange.orders, killed
        assert live.exchange.filled == undisturbed.exchange.filled == live.book.filled, killed
        assert live.book.states == undisturbed.book.states, killed
        assert live.log.kept.keys() == undisturbed.log.kept.keys(), killed


def accounted_for(live):
    """Whether book, audit and broker tell the same of every order, and each made has exactly one end."""
    told = {event.order_id: event.detail["fill"] for event in live.log.of("filled")}
    assert told.keys() == live.exchange.filled.keys() == live.book.filled.keys()
    assert told.keys() <= {event.order_id for event in live.log.of("placed")}
    cancelled = {event.order_id for event in live.log.of("cancelled") if event.order_id}
    assert not cancelled & told.keys()
    gone = {event.plan_id for event in live.log.of("cancelled") if not event.order_id}
    assert {each.order.plan_id for key, each in live.book.placed.items() if key not in told.keys() | cancelled} <= gone
    assert not any(each.status == "accepted" for each in live.book.placed.values())
    assert not live.exchange.open_orders()
    assert not any(state.differences for state in live.book.states.values())
    return True


def test_killed_step_finished_after_the_open_records_its_fills():
    for killed, live in every_kill(again_at_once=False):
        assert accounted_for(live), killed


@pytest.mark.slow
def test_killed_step_ends_an_earlier_plans_open_order_once():
    late = (11, 12, 13)  # the next plan, of the evening of 13, takes its place
    undisturbed = traded(Fuse(), late=late)
    assert accounted_for(undisturbed)
    for killed, live in every_kill(late=late):
        assert live.exchange.orders == undisturbed.exchange.orders, killed
        assert live.book.states == undisturbed.book.states, killed
        assert live.log.kept.keys() == undisturbed.log.kept.keys(), killed
        assert accounted_for(live), killed


@pytest.mark.slow
@pytest.mark.parametrize("halted", [11, 14])
def test_halt_after_the_open_records_fills_of_a_killed_step(halted):
    for killed, live in every_kill(again_at_once=False, halted=halted):
        assert accounted_for(live), killed
