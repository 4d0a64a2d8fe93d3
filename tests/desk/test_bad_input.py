"""Errors that stop a session and leave audit and book unchanged."""

import datetime as dt
import sqlite3
from contextlib import closing
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from nvtrader_pipelines.desk import desk as desk_module
from nvtrader_pipelines.desk.desk import Desk
from nvtrader_pipelines.execution.brokers.account_spec import AlpacaAccountSpec
from nvtrader_pipelines.execution.brokers.broker import BrokerHoldings, Receipt
from nvtrader_pipelines.execution.brokers.live_venue import LiveVenue
from nvtrader_pipelines.execution.errors import AuditIncomplete, BookIncomplete, ExecutionError
from nvtrader_pipelines.execution.journal import Journal
from nvtrader_pipelines.execution.order_placement import RiskControls
from nvtrader_pipelines.execution.plan import Finding
from nvtrader_pipelines.execution.plan_decision import Approve, Override
from nvtrader_pipelines.execution.trader import Trader
from nvtrader_pipelines.portfolio.pipeline import RiskLimits, WeightPipeline
from nvtrader_pipelines.storage.account_book import SqliteBook, book_path
from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.store import Store
from tests.execution.brokers.test_live_venue import Exchange
from tests.execution.desks import ACCOUNT, Account, Deployed, Switch, Wants, prices_of, spec_of, ticking
from tests.execution.plans import record_decision
from tests.markets import synthetic_panel
from tests.promotion.activations import put_unreadable

PANEL = synthetic_panel(40, 10)
NAME = PANEL.symbols[3]
SPEC = spec_of(pipeline=WeightPipeline(risk_limits=RiskLimits(max_position=0.5)))
AT = dt.datetime(2024, 1, 2, tzinfo=dt.UTC)
SOFT = Finding(rule="turnover_pct_warn", level="soft", figure=0.5, bound=0.2, sentence="turnover is high")


@pytest.fixture
def traded(home):
    """Account in cash whose first plan, of ten symbols, waits for its fill."""
    book = SqliteBook(home, ACCOUNT)
    policy = Wants(*np.full(11, 1 / 11))
    account = Account(Deployed(PANEL, SPEC, policy), Store(home).audit, book, prices=prices_of(PANEL))
    yield account.open(10)
    book.close()


def written(home):
    """Bytes of the audit and content of the book."""
    audit = {path.name: path.read_bytes() for path in sorted(home.audit.iterdir())}
    with closing(sqlite3.connect(book_path(home, ACCOUNT))) as book:
        return audit, list(book.iterdump())


def with_market(traded, **arrays):
    """Session on a changed market."""
    traded.deployed.panel = replace(PANEL, **arrays)
    return session(traded)


def session(traded):
    traded.trader = traded.hired()
    return lambda: traded.session(11)


def nan_open(traded, home, monkeypatch):
    traded.prices.opens[11, 3] = np.nan
    return session(traded)


def nan_close_of_a_wanted_name(traded, home, monkeypatch):
    traded.prices.closes[11, 3] = np.nan
    return session(traded)


def nan_return(traded, home, monkeypatch):
    returns = PANEL.close_returns.copy()
    returns[11, 3] = np.nan
    return with_market(traded, close_returns=returns)


def without_a_price(traded, home, monkeypatch):
    traded.prices.last_closes[:, 3] = np.nan
    tradable = PANEL.tradable.copy()
    tradable[:, 3] = False
    return with_market(traded, tradable=tradable)


def negative_cash(traded, home, monkeypatch):
    state = traded.book.last()
    weights = (1.1, *np.zeros(9), -0.1)
    with closing(sqlite3.connect(book_path(home, ACCOUNT))) as book, book:
        book.execute(
            "UPDATE states SET document = ?", [state.model_copy(update={"weights": weights}).model_dump_json()]
        )
    return session(traded)


def a_plan_older_than_the_session(traded, home, monkeypatch):
    plan = Journal(traded.log, ACCOUNT).records()[0].plan
    traded.trade(11, 12)
    return lambda: traded.broker.fill(plan, 12) and traded.broker.orders(plan, 12)


def an_approval_twice(traded, home, monkeypatch):
    traded.trade(11, 12)
    traded.findings = lambda plan, t: (SOFT,)
    traded.trader = traded.hired()
    traded.session(13)
    journal = Journal(traded.log, ACCOUNT)
    record = journal.records()[-1]
    journal.append(record_decision(record, "approved", record.plan.session, ("ann", ""), AT))
    monkeypatch.setattr(Store, "calendar_of", lambda *_: PANEL.calendar)
    return lambda: Desk(Store(home), clock=lambda: AT).decide(record.plan.plan_id, Approve(), "ann")


def an_answer_while_orders_are_placed(traded, home, monkeypatch):
    plan = Journal(traded.log, ACCOUNT).records()[0].plan
    traded.broker.submit(traded.broker.orders(plan, 10)[0][0])  # by an attempt that was killed right after
    return lambda: Desk(Store(home), clock=lambda: AT).decide(plan.plan_id, Override(reason="earnings"), "ann")


def an_unreadable_activation(traded, home, monkeypatch):
    put_unreadable(Store(home))
    return lambda: list(Desk(Store(home), clock=lambda: AT).trade())


def stale_bars(traded, home, monkeypatch):
    market = SimpleNamespace(bot=None, is_live=True, panel=PANEL, day=lambda t: PANEL.sessions[t].item())
    monkeypatch.setattr(desk_module, "require_active", lambda store, account: None)
    monkeypatch.setattr(Desk, "_load_market", lambda desk, active: market)
    return lambda: list(Desk(Store(home), clock=lambda: AT).trade())


def a_silent_broker(traded, home, monkeypatch):
    exchange = Exchange()
    exchange.holdings, exchange.silent = lambda: BrokerHoldings({}, 1e5, 1e5), {PANEL.symbols[0]}
    venue = LiveVenue(exchange, (PANEL, traded.prices), traded.book, AlpacaAccountSpec())
    controls = RiskControls(Switch(), lambda plan, t: (), lambda day: {}, ticking(), "test")
    trader = Trader(traded.deployed, venue, Journal(traded.log, ACCOUNT), controls)
    with pytest.raises(ExecutionError):
        trader.clear(10)  # its orders are kept before the first is placed
    return lambda: trader.clear(10)


@pytest.mark.parametrize(
    "bad",
    [
        nan_open,
        nan_close_of_a_wanted_name,
        nan_return,
        without_a_price,
        negative_cash,
        a_plan_older_than_the_session,
        an_approval_twice,
        an_answer_while_orders_are_placed,
        an_unreadable_activation,
        stale_bars,
        a_silent_broker,
    ],
)
def test_bad_input_raises_and_writes_nothing(bad, traded, home, monkeypatch):
    attempt = bad(traded, home, monkeypatch)
    before = written(home)
    for _ in range(2):
        with pytest.raises((ExecutionError, StorageError)):
            attempt()
        assert written(home) == before


@pytest.fixture
def desk(traded, home, monkeypatch):
    """Desk of the account on its market."""
    market = SimpleNamespace(
        bot=None, is_live=False, panel=PANEL, day=lambda t: PANEL.sessions[t].item(), deployment=traded.deployed
    )
    market.name, market.account = "paper", traded.account_spec
    market.n_ended = len(PANEL.sessions)
    market.index_of = lambda day: PANEL.index_of(np.datetime64(day))
    market.venue, market.findings = lambda book: traded.broker, lambda plan, t: ()
    market.purchase_bans = lambda day: {}
    traded.deployed.clone = lambda: traded.deployed
    monkeypatch.setattr(desk_module, "require_active", lambda store, account: None)
    monkeypatch.setattr(Desk, "_load_market", lambda desk, active: market)
    return Desk(Store(home), clock=lambda: AT)


@pytest.mark.parametrize("lost", [("states", "orders", "fills"), ("states",), ("orders",), ("fills",)])
def test_incomplete_book_is_not_traded_on(lost, traded, home, desk):
    traded.trade(11, 13)
    plan = Journal(traded.log, ACCOUNT).records()[-1].plan.plan_id
    assert len(desk.due()) == 26
    with closing(sqlite3.connect(book_path(home, ACCOUNT))) as book, book:
        for table in lost:
            book.execute(f"DELETE FROM {table}")
    for attempt in (desk.due, lambda: list(desk.trade()), lambda: desk.decide(plan, Approve(), "ann")):
        with pytest.raises(BookIncomplete):
            attempt()


def test_truncated_audit_is_not_traded_on_until_complete(traded, home, desk):
    traded.trade(11, 13)
    traded.trader.execute(14)
    rows, events = traded.log.path.read_bytes().splitlines(keepends=True), traded.log.events()
    n_cleared = max(n for n, event in enumerate(events, start=1) if event.kind == "cleared")

    def cut(left):
        traded.log.path.write_bytes(b"".join(rows[:left]))
        return Desk(desk.store, clock=lambda: AT)

    with pytest.raises(StorageError):
        cut(0).due()
    for left in (5, n_cleared - 1):
        begun, before = cut(left), written(home)
        for step, *given in (("due",), ("execute",), ("clear",), ("decide", events[-1].plan_id, Approve(), "ann")):
            with pytest.raises(AuditIncomplete):
                getattr(begun, step)(*given)
        assert written(home) == before
    for left in (n_cleared, n_cleared + 3, len(rows)):  # as a step that was killed leaves them
        assert len(cut(left).due()) == 26


def test_settle_first_audits_fills_of_a_killed_step(traded, home, desk):
    append = traded.log.append
    traded.log.append = lambda events: append([event for event in events if event.kind != "filled"])
    traded.trader.execute(11)
    assert desk.settle().session == PANEL.sessions[11].item()
    told = {event.order_id for event in Store(home).audit.events(ACCOUNT) if event.kind == "filled"}
    assert told == traded.book.index().fills
    assert len(told) == 10
    assert len(desk.due()) == 28


def halted(traded):
    tradable = PANEL.tradable.copy()
    tradable[11, 3] = False
    traded.deployed.panel = replace(PANEL, tradable=tradable)
    traded.trader = traded.hired()
    return "it has no price on"


def refused(traded):
    submit = traded.broker.submit
    no = Receipt("", "", "rejected", "not borrowable")
    traded.broker.submit = lambda order: no if order.symbol == NAME else submit(order)
    return "rejected: not borrowable"


@pytest.mark.parametrize("bad", [halted, refused])
def test_halted_or_rejected_symbol_leaves_the_others_trading(bad, traded):
    reason = bad(traded)
    state = traded.session(11)
    events = [event for event in traded.log.events(ACCOUNT) if event.order_id is not None]
    own = [(event.kind, event.reason.startswith(reason)) for event in events if event.symbol == NAME]
    assert own == [("cancelled", True)]
    assert len({event.symbol for event in events if event.kind == "filled"}) == 9
    assert NAME not in state.shares
