"""An account at a broker, evening by evening, against a server that speaks Alpaca's API."""

import datetime as dt
from functools import partial
from zoneinfo import ZoneInfo

import pytest

from nvtrader_pipelines.desk.halt import halt
from nvtrader_pipelines.desk.open_orders import Stop, withdraw_all
from nvtrader_pipelines.desk.rows import fill_rows, order_rows, state_rows
from nvtrader_pipelines.evaluation.steps import drain
from nvtrader_pipelines.execution.brokers.broker import BrokerTimeout
from nvtrader_pipelines.execution.errors import ExecutionError, NotReconciled
from nvtrader_pipelines.execution.order_placement import TOO_LATE
from nvtrader_pipelines.execution.plan_records import plan_records
from nvtrader_pipelines.market.calendar import sessions
from nvtrader_pipelines.orchestration.rebalancing import executed
from nvtrader_pipelines.storage.account_book import SqliteBook, book_path
from nvtrader_pipelines.storage.medallion import read_panel
from nvtrader_pipelines.storage.panel_prices import read_prices
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.table import to_frame
from nvtrader_pipelines.storage.tables import PORTFOLIO_STATE
from tests.desk.desks import add_account, days_of, desk, evening, states, trade
from tests.execution.brokers.alpaca_stub import KEYS, AlpacaStub, serving
from tests.runs.small_runs import N_SESSIONS, land
from tests.runs.untrained import AT


@pytest.fixture
def home(trading_home):
    return trading_home


def test_an_account_at_a_broker_does_not_trade_on_stale_bars(home):
    store, _ = home
    add_account(store, "live", "alpaca")
    last = days_of(store)[-1]
    evening = dt.datetime.combine(last, dt.time(21, 30), tzinfo=dt.UTC)
    for at in (evening + dt.timedelta(days=5), AT):
        with pytest.raises(
            ExecutionError, match=f"need the bars of its last session, .* but the market ends on {last}"
        ):
            desk(store, "live", at).due()
    for at in (evening - dt.timedelta(hours=6), evening - dt.timedelta(days=10)):  # bars of a session that goes on
        with pytest.raises(ExecutionError, match=f"of sessions that have ended, .* but the market ends on {last}"):
            desk(store, "live", at).due()
    for at in (evening, evening + dt.timedelta(hours=14)):  # before the next session's close
        with pytest.raises(ExecutionError, match="needs Alpaca's keys"):
            desk(store, "live", at).due()
    assert not book_path(store.home, "live").exists()


@pytest.fixture
def exchange(home, monkeypatch):
    """An account `live` at a server of Alpaca's API, on the evening of the market's last session."""
    store, _ = home
    monkeypatch.setenv("APCA_API_KEY_ID", KEYS[0])
    monkeypatch.setenv("APCA_API_SECRET_KEY", KEYS[1])
    days = days_of(store)
    with serving(AlpacaStub(clock=evening(store))) as stub:
        panel = read_panel(store.tables, "landing")
        stub.prices.update(zip(panel.symbols, read_prices(store.tables, panel).closes[-1].tolist(), strict=True))
        add_account(store, "live", f"alpaca\nbase_url: {stub.url}\nretries: 0")
        yield stub
    if days_of(store) != days:
        land(store)


def live(store, at=None):
    """The desk of the account at the broker, this evening."""
    return desk(store, "live", at or evening(store))


def trade_live(store):
    """Trade the account at the broker this evening; its plans."""
    drain(live(store).trade())
    return live(store).plans()


def test_an_account_at_a_broker_places_what_is_approved_and_is_reconciled_with_it_the_next_evening(home, exchange):
    store, _ = home
    plans = trade_live(store)
    (plan,) = plans["plan_id"]
    assert (plans["status"][0], exchange.orders) == ("waiting", [])
    live(store).approve(plan, "ann", "I looked")
    assert [order["client_order_id"] for order in exchange.orders] == [f"{plan}-{s}" for s in ("AAA", "BBB", "CCC")]
    assert live(store).due() == []
    exchange.open_exchange()
    land(store, N_SESSIONS + 1)
    plans = trade_live(store)
    state = states(store, "live")[-1]
    assert state.session == days_of(store)[-1]
    assert state.shares == pytest.approx(exchange.positions)
    assert not state.differences
    assert plans["status"][0] == "filled"


def test_a_plan_that_a_silent_broker_left_is_not_placed_on_a_later_evening(home, exchange):
    store, _ = home
    (plan,) = trade_live(store)["plan_id"]
    exchange.faults["POST /v2/orders"].append("unavailable")
    with pytest.raises(ExecutionError, match="must answer, but did not for order"):
        live(store).approve(plan, "ann", "I looked")
    land(store, N_SESSIONS + 2)
    assert live(store).due() == days_of(store)[-1:]
    trade_live(store)
    assert exchange.orders == []
    (event,) = [e for e in store.audit.events("live") if e.kind == "cancelled"]
    assert (event.plan_id, event.reason) == (plan, TOO_LATE)


def test_a_plan_that_was_approved_without_an_order_made_of_it_is_cancelled_on_a_later_evening(home, exchange):
    store, _ = home
    (plan,) = trade_live(store)["plan_id"]
    exchange.faults["GET /v2/account"].append("unavailable")
    with pytest.raises(BrokerTimeout):
        live(store).approve(plan, "ann", "I looked")
    land(store, N_SESSIONS + 1)
    assert trade_live(store).filter(plan_id=plan)["status"].to_list() == ["cancelled"]
    assert exchange.orders == []


def test_a_plan_at_a_broker_is_not_approved_once_the_exchange_has_opened_or_later_bars_are_there(home, exchange):
    store, _ = home
    (plan,) = trade_live(store)["plan_id"]
    at = evening(store)
    following = sessions(at.date() + dt.timedelta(days=1), at.date() + dt.timedelta(days=9))[0].item()
    opened = dt.datetime.combine(following, dt.time(9, 30), ZoneInfo("America/New_York"))
    with pytest.raises(ExecutionError, match=f"must be placed before the exchange opens on {following}, which it has"):
        live(store, opened).approve(plan, "ann", "I looked")
    land(store, N_SESSIONS + 1)
    with pytest.raises(ExecutionError, match="so the fill session of its plan has passed"):
        live(store).approve(plan, "ann", "I looked")
    assert not [event for event in store.audit.events("live") if event.kind == "approved"]
    assert exchange.orders == []


def test_nobody_but_a_person_acknowledges_what_is_found_in_a_plan_at_a_broker(home, exchange):
    store, _ = home
    trade_live(store)
    replay = partial(trade, account="live", at=evening(store))
    for attempt in (
        lambda: replay(store),
        lambda: replay(store, None, days_of(store)[-1]),
        lambda: executed(live(store), lambda _: None, acknowledge=True),
    ):
        with pytest.raises(ExecutionError, match=r"acknowledged by the r.* must be kept here, but live is at a broker"):
            attempt()
    assert live(store).plans()["status"].to_list() == ["waiting"]
    assert exchange.orders == []


def test_an_account_at_a_broker_does_not_open_in_the_past(home, exchange):
    store, run = home
    with pytest.raises(ExecutionError, match="begins on a day of the past must be kept here"):
        trade(store, run.as_parent.window[0], account="live", at=evening(store), acknowledge=False)
    assert exchange.requests == []
    assert not book_path(store.home, "live").exists()


def approved_live(store):
    """The orders of the first plan are at the broker; its id."""
    (plan,) = trade_live(store)["plan_id"]
    live(store).approve(plan, "ann", "I looked")
    return plan


@pytest.mark.parametrize("step", [trade_live, lambda store: live(store).execute()], ids=["trade", "execute"])
def test_while_trading_is_stopped_what_waits_at_the_broker_is_cancelled_though_nothing_is_due(home, exchange, step):
    store, _ = home
    plan = approved_live(store)
    halt(store, "ann", "news", lambda: AT)
    assert live(store).due() == []
    step(store)
    assert [order["status"] for order in exchange.orders] == ["canceled"] * 3
    events = [each for each in store.audit.events("live") if each.kind == "cancelled"]
    assert {each.order_id for each in events} == {f"{plan}-{name}" for name in ("AAA", "BBB", "CCC")}
    assert all("news" in each.reason for each in events)


def test_stopping_cancels_at_the_broker_itself_and_says_what_may_still_be_open(home, exchange, monkeypatch):
    store, _ = home
    approved_live(store)
    stop = Stop("news", "ann", lambda: AT)
    monkeypatch.delenv("APCA_API_KEY_ID")
    cancelled, still_open = withdraw_all(store, stop)
    assert cancelled == []
    assert "APCA_API_KEY_ID is not set" in still_open["live"]
    monkeypatch.setenv("APCA_API_KEY_ID", KEYS[0])
    cancelled, still_open = withdraw_all(store, stop)
    assert (sorted(cancelled), still_open) == (sorted(order["client_order_id"] for order in exchange.orders), {})
    assert SqliteBook(store.home, "live").open_orders() == []
    assert withdraw_all(store, stop) == ([], {})


def test_what_was_cancelled_while_the_audit_was_damaged_is_told_by_the_next_session(home, exchange):
    store, _ = home
    plan, log = approved_live(store), store.audit
    whole = log.path.read_bytes()
    log.path.write_bytes(whole.replace(b"AAA", b"XXX", 1))
    cancelled, still_open = withdraw_all(Store(store.home), Stop("news", "ann", lambda: AT))
    assert sorted(cancelled) == [f"{plan}-{name}" for name in ("AAA", "BBB", "CCC")]
    assert still_open == {}
    log.path.write_bytes(whole)
    land(store, N_SESSIONS + 1)
    trade_live(store)
    told = [each for each in store.audit.events("live") if each.kind == "cancelled"]
    assert sorted((each.order_id, each.reason) for each in told) == [(key, "news") for key in sorted(cancelled)]


def test_an_order_that_is_filled_when_trading_is_stopped_stays_a_fill(home, exchange):
    store, _ = home
    plan = approved_live(store)
    exchange.open_exchange()
    assert withdraw_all(store, Stop("news", "ann", lambda: AT)) == ([], {})
    land(store, N_SESSIONS + 1)
    assert trade_live(store).filter(plan_id=plan)["status"].to_list() == ["filled"]
    state = states(store, "live")[-1]
    assert not state.differences
    assert state.shares == pytest.approx(exchange.positions)


def placed_live(store, exchange, but=None):
    """The first plan was approved, and the next session has come; its id."""
    plan = approved_live(store)
    exchange.open_exchange(but)
    exchange.is_open = False
    land(store, N_SESSIONS + 1)
    return plan


def test_shares_that_another_hand_sold_stop_the_account_until_they_are_back(home, exchange):
    store, _ = home
    placed_live(store, exchange)
    held = exchange.positions["AAA"]
    exchange.positions["AAA"] -= 3.0
    with pytest.raises(NotReconciled, match=r"AAA: .* shares expected, .* held \(-3\); .* --account live") as stopped:
        trade_live(store)
    with pytest.raises(NotReconciled) as again:
        trade_live(store)
    assert str(again.value) == str(stopped.value)
    land(store, N_SESSIONS + 2)
    with pytest.raises(NotReconciled):
        trade_live(store)
    assert states(store, "live")[-1].session == days_of(store)[-2]
    exchange.positions["AAA"] = held
    trade_live(store)
    assert [state.session for state in states(store, "live")][-2:] == days_of(store)[-2:]
    assert not states(store, "live")[-1].differences
    assert not [each for each in store.audit.events("live") if each.kind == "accepted"]


def test_shares_that_a_person_accepted_as_they_are_are_what_the_next_close_expects(home, exchange):
    store, _ = home
    placed_live(store, exchange)
    exchange.positions["AAA"] -= 3.0
    with pytest.raises(NotReconciled):
        trade_live(store)
    live(store).accept("ann", "I sold three of them")
    trade_live(store)
    land(store, N_SESSIONS + 2)
    trade_live(store)
    state = states(store, "live")[-1]
    assert (state.session, state.differences) == (days_of(store)[-1], ())


def test_an_order_that_is_filled_after_its_evening_is_told_and_mirrored_the_next_evening(home, exchange):
    store, _ = home
    plan = placed_live(store, exchange, but="AAA")
    assert trade_live(store).filter(plan_id=plan)["status"].to_list() == ["placed"]
    assert states(store, "live")[-1].working == {f"{plan}-AAA": 0.0}
    exchange.open_exchange()
    land(store, N_SESSIONS + 2)
    assert trade_live(store).filter(plan_id=plan)["status"].to_list() == ["filled"]
    assert not states(store, "live")[-1].differences
    events = store.audit.events("live")
    records = plan_records(events)
    assert sorted(row["symbol"] for row in fill_rows(events, records) if row["plan_id"] == plan) == [
        "AAA",
        "BBB",
        "CCC",
    ]
    assert {row["status"] for row in order_rows(events, records) if row["plan_id"] == plan} == {"filled"}


def test_a_deposit_at_the_broker_is_a_flow_and_a_fee_a_cost_in_the_tables_rows(home, exchange):
    store, _ = home
    placed_live(store, exchange)
    before = states(store, "live")[-1]
    exchange.book("CSD", 50_000.0)
    exchange.book("FEE", -1.5)
    trade_live(store)
    state = states(store, "live")[-1]
    earned = (state.value - 50_000.0) / before.value - 1.0
    assert abs(earned) < 0.1
    assert (state.flow, state.net_return) == (50_000.0, pytest.approx(earned, abs=1e-12))
    row = to_frame(PORTFOLIO_STATE, state_rows("live", [state])).row(0, named=True)
    assert (row["flow"], row["income"], row["value"]) == (50_000.0, 0.0, pytest.approx(state.value))
    assert row["cost"] == pytest.approx(1.5 / before.value)
