"""Account at a broker, evening by evening, against a stub of Alpaca's API."""

import datetime as dt
from functools import partial
from zoneinfo import ZoneInfo

import pytest

from nvtrader_pipelines.desk.halt import halt
from nvtrader_pipelines.desk.open_orders import CancelRequest, cancel_all_orders
from nvtrader_pipelines.desk.portfolio_rows import fill_rows, order_rows, state_rows
from nvtrader_pipelines.envs.spec import EnvSpec
from nvtrader_pipelines.evaluation.step_generators import drain
from nvtrader_pipelines.execution.brokers.broker import BrokerTimeout
from nvtrader_pipelines.execution.errors import ExecutionError, NotReconciled
from nvtrader_pipelines.execution.order_placement import TOO_LATE
from nvtrader_pipelines.execution.plan_decision import Approve
from nvtrader_pipelines.execution.plan_records import plan_records
from nvtrader_pipelines.market.calendar import NEW_YORK
from nvtrader_pipelines.orchestration.rebalance_steps import execute_due_sessions
from nvtrader_pipelines.storage.account_book import SqliteBook, book_path
from nvtrader_pipelines.storage.panel_prices import read_prices
from nvtrader_pipelines.storage.panels import read_panel
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.table import to_frame
from nvtrader_pipelines.storage.tables import PORTFOLIO_STATE
from tests.desk.desks import add_account, days_of, desk, evening, states, trade
from tests.execution.brokers.alpaca_stub import KEYS, AlpacaStub, serving
from tests.runs.small_runs import N_SESSIONS, land
from tests.runs.untrained import AT

pytestmark = pytest.mark.slow


@pytest.fixture
def home(trading_home):
    return trading_home


def test_broker_account_with_stale_bars_is_refused(home):
    store, _ = home
    add_account(store, "live", "alpaca")
    last = days_of(store)[-1]
    evening = dt.datetime.combine(last, dt.time(21, 30), tzinfo=dt.UTC)
    in_progress = (evening - dt.timedelta(hours=6), evening - dt.timedelta(days=10))
    for at in (evening + dt.timedelta(days=5), AT, *in_progress):
        with pytest.raises(ExecutionError, match=f"ends on {last}"):
            desk(store, "live", at).due()
    for at in (evening, evening + dt.timedelta(hours=14)):  # before the next session's close
        with pytest.raises(ExecutionError, match="keys"):
            desk(store, "live", at).due()
    assert not book_path(store.home, "live").exists()


def test_levered_policy_is_refused_at_a_broker_before_any_request(home, monkeypatch):
    store, _ = home
    add_account(store, "live", "alpaca")
    monkeypatch.setattr(EnvSpec, "is_levered", property(lambda spec: True))
    with pytest.raises(ExecutionError, match="long-only"):
        live(store).due()
    assert not book_path(store.home, "live").exists()


@pytest.fixture
def exchange(home, monkeypatch):
    """Stub of Alpaca's API with an account `live`, on the evening of the last session."""
    store, _ = home
    monkeypatch.setenv("APCA_API_KEY_ID", KEYS[0])
    monkeypatch.setenv("APCA_API_SECRET_KEY", KEYS[1])
    with serving(AlpacaStub(clock=evening(store))) as stub:
        panel = read_panel(store.tables, "landing")
        stub.prices.update(zip(panel.symbols, read_prices(store.tables, panel).closes[-1].tolist(), strict=True))
        add_account(store, "live", f"alpaca\nbase_url: {stub.url}\nretries: 0")
        yield stub


def live(store, at=None):
    """Desk of the account at the broker, on the evening of the last session."""
    return desk(store, "live", at or evening(store))


def trade_live(store):
    """Trade the account at the broker and return its plans."""
    drain(live(store).trade())
    return live(store).plans()


def test_approved_orders_are_placed_and_reconciled_next_evening(home, exchange):
    store, _ = home
    plans = trade_live(store)
    (plan,) = plans["plan_id"]
    assert (plans["status"][0], exchange.orders) == ("waiting", [])
    live(store).decide(plan, Approve(reason="I looked"), "ann")
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


def test_plan_left_by_a_silent_broker_is_cancelled_later(home, exchange):
    store, _ = home
    (plan,) = trade_live(store)["plan_id"]
    exchange.faults["POST /v2/orders"].append("unavailable")
    with pytest.raises(ExecutionError):
        live(store).decide(plan, Approve(reason="I looked"), "ann")
    land(store, N_SESSIONS + 2)
    assert live(store).due() == days_of(store)[-1:]
    trade_live(store)
    assert exchange.orders == []
    (event,) = [e for e in store.audit.events("live") if e.kind == "cancelled"]
    assert (event.plan_id, event.reason) == (plan, TOO_LATE)


def test_approved_plan_without_orders_is_cancelled_later(home, exchange):
    store, _ = home
    (plan,) = trade_live(store)["plan_id"]
    exchange.faults["GET /v2/account"].append("unavailable")
    with pytest.raises(BrokerTimeout):
        live(store).decide(plan, Approve(reason="I looked"), "ann")
    land(store, N_SESSIONS + 1)
    assert trade_live(store).filter(plan_id=plan)["status"].to_list() == ["cancelled"]
    assert exchange.orders == []


def test_late_approval_at_a_broker_is_refused(home, exchange):
    store, _ = home
    (plan,) = trade_live(store)["plan_id"]
    at = evening(store)
    following = NEW_YORK.sessions(at.date() + dt.timedelta(days=1), at.date() + dt.timedelta(days=9))[0].item()
    opened = dt.datetime.combine(following, dt.time(9, 30), ZoneInfo("America/New_York"))
    with pytest.raises(ExecutionError, match=f"{following}"):
        live(store, opened).decide(plan, Approve(reason="I looked"), "ann")
    land(store, N_SESSIONS + 1)
    with pytest.raises(ExecutionError):
        live(store).decide(plan, Approve(reason="I looked"), "ann")
    assert not [event for event in store.audit.events("live") if event.kind == "approved"]
    assert exchange.orders == []


def test_replay_cannot_acknowledge_findings_at_a_broker(home, exchange):
    store, _ = home
    trade_live(store)
    replay = partial(trade, account="live", at=evening(store))
    for attempt in (
        lambda: replay(store),
        lambda: replay(store, None, days_of(store)[-1]),
        lambda: execute_due_sessions(live(store), lambda _: None, acknowledge=True),
    ):
        with pytest.raises(ExecutionError):
            attempt()
    assert live(store).plans()["status"].to_list() == ["waiting"]
    assert exchange.orders == []


def test_broker_account_cannot_open_in_the_past(home, exchange):
    store, run = home
    with pytest.raises(ExecutionError):
        trade(store, run.as_parent.window[0], account="live", at=evening(store), acknowledge=False)
    assert exchange.requests == []
    assert not book_path(store.home, "live").exists()


def approved_live(store):
    """Place the orders of the first plan at the broker and return its id."""
    (plan,) = trade_live(store)["plan_id"]
    live(store).decide(plan, Approve(reason="I looked"), "ann")
    return plan


@pytest.mark.parametrize("step", [trade_live, lambda store: live(store).execute()], ids=["trade", "execute"])
def test_halt_cancels_open_orders_without_a_due_session(home, exchange, step):
    store, _ = home
    plan = approved_live(store)
    halt(store, "ann", "news", lambda: AT)
    assert live(store).due() == []
    step(store)
    assert [order["status"] for order in exchange.orders] == ["canceled"] * 3
    events = [each for each in store.audit.events("live") if each.kind == "cancelled"]
    assert {each.order_id for each in events} == {f"{plan}-{name}" for name in ("AAA", "BBB", "CCC")}
    assert all("news" in each.reason for each in events)


def test_cancel_all_orders_reports_orders_that_may_be_open(home, exchange, monkeypatch):
    store, _ = home
    approved_live(store)
    stop = CancelRequest("news", "ann", lambda: AT)
    monkeypatch.delenv("APCA_API_KEY_ID")
    cancelled, still_open = cancel_all_orders(store, stop)
    assert cancelled == []
    assert "APCA_API_KEY_ID is not set" in still_open["live"]
    monkeypatch.setenv("APCA_API_KEY_ID", KEYS[0])
    cancelled, still_open = cancel_all_orders(store, stop)
    assert (sorted(cancelled), still_open) == (sorted(order["client_order_id"] for order in exchange.orders), {})
    assert SqliteBook(store.home, "live").open_orders() == []
    assert cancel_all_orders(store, stop) == ([], {})


def test_cancellations_under_a_damaged_audit_are_audited_later(home, exchange):
    store, _ = home
    plan, log = approved_live(store), store.audit
    whole = log.path.read_bytes()
    log.path.write_bytes(whole.replace(b"AAA", b"XXX", 1))
    cancelled, still_open = cancel_all_orders(Store(store.home), CancelRequest("news", "ann", lambda: AT))
    assert sorted(cancelled) == [f"{plan}-{name}" for name in ("AAA", "BBB", "CCC")]
    assert still_open == {}
    log.path.write_bytes(whole)
    land(store, N_SESSIONS + 1)
    trade_live(store)
    told = [each for each in store.audit.events("live") if each.kind == "cancelled"]
    assert sorted((each.order_id, each.reason) for each in told) == [(key, "news") for key in sorted(cancelled)]


def test_order_filled_during_a_halt_stays_filled(home, exchange):
    store, _ = home
    plan = approved_live(store)
    exchange.open_exchange()
    assert cancel_all_orders(store, CancelRequest("news", "ann", lambda: AT)) == ([], {})
    land(store, N_SESSIONS + 1)
    assert trade_live(store).filter(plan_id=plan)["status"].to_list() == ["filled"]
    state = states(store, "live")[-1]
    assert not state.differences
    assert state.shares == pytest.approx(exchange.positions)


def placed_live(store, exchange, but=None):
    """Approve the first plan, advance to the next session and return the plan's id."""
    plan = approved_live(store)
    exchange.open_exchange(but)
    exchange.is_open = False
    land(store, N_SESSIONS + 1)
    return plan


def test_missing_shares_stop_the_account_until_they_are_back(home, exchange):
    store, _ = home
    placed_live(store, exchange)
    held = exchange.positions["AAA"]
    exchange.positions["AAA"] -= 3.0
    with pytest.raises(NotReconciled) as stopped:
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


def test_accepted_shares_are_expected_at_the_next_close(home, exchange):
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


def test_late_fill_is_audited_and_mirrored_next_evening(home, exchange):
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


def test_deposit_is_a_flow_and_fee_is_a_cost(home, exchange):
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
