import datetime as dt
import shutil
import subprocess
import sys
from functools import partial
from zoneinfo import ZoneInfo

import numpy as np
import polars as pl
import pytest

from nvtrader_pipelines.execution.brokers.broker import BrokerTimeout
from nvtrader_pipelines.execution.errors import ExecutionError
from nvtrader_pipelines.market.calendar import sessions
from nvtrader_pipelines.orchestration.rebalancing import executed
from nvtrader_pipelines.storage import desk_market
from nvtrader_pipelines.storage.audit_log import JsonlAudit
from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.execution import followed
from nvtrader_pipelines.storage.kill_switch import halt, resume
from nvtrader_pipelines.storage.medallion import read_panel
from nvtrader_pipelines.storage.open_orders import Stop, withdraw_all
from nvtrader_pipelines.storage.paper_backtest import account_backtest, deployment_of
from nvtrader_pipelines.storage.paper_book import SqliteBook, book_path
from nvtrader_pipelines.storage.prices import read_prices
from nvtrader_pipelines.storage.tables import EVALUATIONS, PORTFOLIO_STATE
from nvtrader_pipelines.storage.trading import Desk
from nvtrader_pipelines.storage.warehouse import Warehouse
from tests.execution.brokers.alpaca_stub import KEYS, AlpacaStub, serving
from tests.storage.desks import judged_home, make_active
from tests.storage.small_runs import N_SESSIONS, land
from tests.storage.untrained import AT

HOLD = (
    "import fcntl, sys; f = open(sys.argv[1], 'a'); fcntl.flock(f, fcntl.LOCK_EX); print('held', flush=True); input()"
)


DESKS, TIME = {}, {}


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """A home with a tested run; only to be copied or read."""
    return judged_home(tmp_path_factory.mktemp("desk") / "home")


@pytest.fixture
def home(built, monkeypatch):
    """The home with its policy active, no account and no event yet."""
    lake, run = built
    DESKS.clear()
    monkeypatch.delenv("NVTRADER_KILL_SWITCH", raising=False)
    for folder in (lake.home.runtime, lake.home.audit, lake.home.accounts):
        shutil.rmtree(folder, ignore_errors=True)
    make_active(lake, run)
    return lake, run


def desk(lake, account="paper", at=AT) -> Desk:
    """The account's desk, which reads the market anew where it has changed; all of them share what time it is."""
    TIME["now"] = at
    if account not in DESKS:
        DESKS[account] = Desk.open(lake, account, clock=lambda: TIME["now"], by="test")
    return DESKS[account]


def trade(lake, *days, account="paper", at=AT, acknowledge=True):
    told = []
    followed(desk(lake, account, at).trade(*days, acknowledge=acknowledge), told.append)
    return told


def days_of(lake):
    panel = read_panel(lake, "landing")
    return [day.item() for day in panel.sessions]


def states(lake, account="paper"):
    return SqliteBook(lake.home, account).states()


def test_a_history_is_traded_day_by_day_and_its_equity_is_the_back_tests(home):
    lake, run = home
    first, last = run.as_parent.window
    told = trade(lake, first, last)
    days = [day for day in days_of(lake) if first <= day <= last]
    kept = states(lake)
    assert [state.session for state in kept[1:]] == days
    assert [step.stage for step in told] == ["equity.update"] * len(kept) + ["done"]
    assert told[-2].share == 1.0
    tested = account_backtest(deployment_of(lake, run.run_id, run.experiment), kept[0].session, kept[-1].session)
    np.testing.assert_allclose([state.equity for state in kept[1:]], tested["equity"].to_list(), rtol=1e-12)
    assert not any(state.differences for state in kept)
    assert desk(lake).plans()["status"].to_list()[1:] == ["filled"] * (len(desk(lake).plans()) - 1)


def test_a_history_goes_on_where_it_stopped_and_ends_the_same(home):
    lake, run = home
    first = run.as_parent.window[0]
    days = [day for day in days_of(lake) if day >= first]
    last = days[16]
    trade(lake, first, last)
    add_account(lake, "halves")
    for until in (days[3], days[9], last):
        steps = desk(lake, "halves").trade(first, until, acknowledge=True)
        next(steps, None)
        steps.close()  # as by Ctrl-C
        trade(lake, first, until, account="halves")
    whole, halves = states(lake), states(lake, "halves")
    assert [state.model_dump(exclude={"plan_id"}) for state in halves] == [
        state.model_dump(exclude={"plan_id"}) for state in whole
    ]


def add_account(lake, name, kind="paper"):
    """An account with the defaults of its kind."""
    lake.home.accounts.mkdir(exist_ok=True)
    (lake.home.accounts / f"{name}.yaml").write_text(f"kind: {kind}\n")


def test_an_account_without_a_first_session_opens_at_the_last_and_trades_the_next_once_it_is_there(home):
    lake, _ = home
    (last,) = desk(lake).due()
    assert last == days_of(lake)[-1]
    trade(lake)
    assert [state.session for state in states(lake)] == [last]
    assert desk(lake).due() == []
    assert len(desk(lake).plans()) == 1
    try:
        land(lake, N_SESSIONS + 3)
        fresh = days_of(lake)[-3:]
        assert desk(lake).due() == fresh
        trade(lake)
        assert [state.session for state in states(lake)] == [last, *fresh]
        assert states(lake)[1].plan_id is not None
    finally:
        land(lake)


def test_the_steps_of_a_session_one_by_one_are_the_session_whole(home):
    lake, _ = home
    days = days_of(lake)[-12:]
    add_account(lake, "steps")
    trade(lake, days[0], days[0], account="steps")
    one = desk(lake, "steps")
    one.execute()  # whatever is due before the last session is traded whole
    state = one.settle()
    assert state.session == days[-1]
    one.propose()
    one.clear()
    assert one.clear() == []
    assert desk(lake, "steps").due() == []
    assert one.execute() == []
    assert len(states(lake, "steps")) == len(days) + 1


def test_without_an_active_policy_nothing_trades(home):
    lake, _ = home
    lake.home.active_policy.unlink()
    with pytest.raises(StorageError, match="no policy is active"):
        desk(lake).due()
    with pytest.raises(StorageError, match="no policy is active"):
        trade(lake)
    assert not book_path(lake.home, "paper").exists()


def test_a_damaged_pointer_stops_trading(home):
    lake, _ = home
    lake.home.active_policy.write_text("{")
    with pytest.raises(StorageError, match="cannot be read as the active policy"):
        trade(lake)
    assert not book_path(lake.home, "paper").exists()


@pytest.mark.parametrize("sharpe", [None, 0.0])
def test_a_policy_that_was_never_tested_does_not_trade(home, sharpe):
    lake, run = home
    where = {"spec_hash": [run.spec_hash], "run_id": [run.run_id]}
    rows = lake.read(EVALUATIONS)
    lake.replace(EVALUATIONS, rows.with_columns(sharpe=pl.lit(sharpe, pl.Float64)), where)
    try:
        with pytest.raises(StorageError, match="must have been tested before it trades"):
            trade(lake)
        assert not book_path(lake.home, "paper").exists()
    finally:
        lake.replace(EVALUATIONS, rows, where)


def test_a_policy_whose_tests_lie_too_far_back_does_not_begin_to_trade(home, monkeypatch):
    lake, run = home
    days, last = days_of(lake), run.as_parent.window[1]
    trade(lake, days[-3], days[-2])
    monkeypatch.setattr(desk_market, "RECENT", -1)
    add_account(lake, "late")
    with pytest.raises(ExecutionError, match=f"was tested to {last}"):
        trade(lake, account="late")
    assert not states(lake, "late")
    trade(lake)  # what has begun goes on
    for n, policy in enumerate((f"{run.experiment}/seed-{run.seeds[0]}", run.experiment), start=1):
        make_active(lake, run, policy, at=AT + dt.timedelta(days=n))
    with pytest.raises(ExecutionError, match=f"was tested to {last}"):  # what is activated again begins again
        trade(lake)


def test_an_account_does_not_begin_before_the_policys_tests_nor_after_the_market(home):
    lake, run = home
    days, (first, _) = days_of(lake), run.as_parent.window
    before = days[days.index(first) - 1]
    with pytest.raises(ExecutionError, match=f"may trade from {first} on"):
        trade(lake, before)
    with pytest.raises(ExecutionError, match=f"the last session to trade, {before}, is before the first, {first}"):
        trade(lake, first, before)
    with pytest.raises(ExecutionError, match=f"the market ends on {days[-1]}"):
        trade(lake, days[-1] + dt.timedelta(days=30))
    assert not book_path(lake.home, "paper").exists()


def test_an_account_that_was_opened_at_another_session_does_not_begin_anew(home):
    lake, run = home
    days, (first, _) = days_of(lake), run.as_parent.window
    trade(lake, first, days[days.index(first) + 2])
    with pytest.raises(ExecutionError, match=r"was opened at .* and goes on from where it stands"):
        trade(lake, days[days.index(first) + 1])
    assert len(states(lake)) == 4


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ("alpaca", "opened as one kept here and data/accounts says it is kept at Alpaca, on paper;"),
        ("paper\ncapital: 25_000", r"here with a capital of 1,000,000\.0 and .* here with a capital of 25,000\.0;"),
    ],
)
def test_an_account_that_its_file_makes_another_is_refused_and_keeps_its_book(home, changed, sentence):
    lake, _ = home
    trade(lake)
    before = states(lake)
    add_account(lake, "paper", changed)
    DESKS.clear()  # another process
    with pytest.raises(StorageError, match=sentence):
        desk(lake, at=evening(lake)).due()
    assert states(lake) == before
    (lake.home.accounts / "paper.yaml").unlink()
    DESKS.clear()
    assert desk(lake).due() == []


def test_a_second_process_is_told_that_the_account_is_traded(home):
    lake, _ = home
    trade(lake)
    lock = book_path(lake.home, "paper").with_suffix(".lock")
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(lock)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        for attempt in (desk(lake).due, desk(lake).execute, lambda: trade(lake)):
            with pytest.raises(StorageError, match="traded by another process at this moment"):
                attempt()
        other.communicate("\n")
    assert desk(lake).due() == []


def test_a_person_answers_a_plan_once_and_its_orders_follow(home):
    lake, _ = home
    trade(lake, acknowledge=False)
    plans = desk(lake).plans()
    assert plans["status"].to_list() == ["waiting"]
    plan = plans["plan_id"][0]
    with pytest.raises(ExecutionError, match="has no plan 0123"):
        desk(lake).approve("0123", "ann")
    with pytest.raises(ExecutionError, match="for a reason"):
        desk(lake).reject(plan, "ann", "")
    assert desk(lake).approve(plan, "ann", "I looked").kind == "approved"
    for answer in ("approve", "override", "reject"):
        with pytest.raises(ExecutionError, match="decided on once, but"):
            getattr(desk(lake), answer)(plan, "bob", "again")
    assert [event.by for event in JsonlAudit(lake.home).events("paper") if event.kind == "approved"] == ["ann"]
    try:
        land(lake, N_SESSIONS + 1)
        trade(lake, acknowledge=False)
        assert desk(lake).plans()["status"].to_list() == ["filled"]
    finally:
        land(lake)


def test_a_halted_desk_holds_and_goes_on_once_it_is_resumed(home):
    lake, run = home
    first = run.as_parent.window[0]
    days = [day for day in days_of(lake) if day >= first]
    trade(lake, first, days[1])
    before, log = states(lake)[-1], JsonlAudit(lake.home)
    halt(lake.home, log, "ann", "news", lambda: AT)
    trade(lake, first, days[8])
    held = states(lake)[-1]
    assert {name: round(n, 6) for name, n in held.shares.items()} == {n: round(x, 6) for n, x in before.shares.items()}
    halted = [event.session for event in JsonlAudit(lake.home).events("paper") if event.kind == "halted"]
    assert halted == days[2:9]
    resume(lake.home, log, "ann", "over", lambda: AT)
    trade(lake, first, days[10])
    assert states(lake)[-1].plan_id is not None or states(lake)[-2].plan_id is not None


def test_an_account_at_a_broker_does_not_trade_on_stale_bars(home):
    lake, _ = home
    add_account(lake, "live", "alpaca")
    last = days_of(lake)[-1]
    evening = dt.datetime.combine(last, dt.time(21, 30), tzinfo=dt.UTC)
    for at in (evening + dt.timedelta(days=5), AT):
        with pytest.raises(
            ExecutionError, match=f"need the bars of its last session, .* but the market ends on {last}"
        ):
            desk(lake, "live", at).due()
    for at in (evening - dt.timedelta(hours=6), evening - dt.timedelta(days=10)):  # bars of a session that goes on
        with pytest.raises(ExecutionError, match=f"of sessions that have ended, .* but the market ends on {last}"):
            desk(lake, "live", at).due()
    for at in (evening, evening + dt.timedelta(hours=14)):  # before the next session's close
        with pytest.raises(ExecutionError, match="needs Alpaca's keys"):
            desk(lake, "live", at).due()
    assert not book_path(lake.home, "live").exists()


@pytest.fixture
def exchange(home, monkeypatch):
    """An account `live` at a server of Alpaca's API, on the evening of the market's last session."""
    lake, _ = home
    monkeypatch.setenv("APCA_API_KEY_ID", KEYS[0])
    monkeypatch.setenv("APCA_API_SECRET_KEY", KEYS[1])
    days = days_of(lake)
    with serving(AlpacaStub(clock=evening(lake))) as stub:
        panel = read_panel(lake, "landing")
        stub.prices.update(zip(panel.symbols, read_prices(lake, panel).closes[-1].tolist(), strict=True))
        add_account(lake, "live", f"alpaca\nbase_url: {stub.url}\nretries: 0")
        yield stub
    if days_of(lake) != days:
        land(lake)


def evening(lake):
    """After the close of the last session there are bars of."""
    return dt.datetime.combine(days_of(lake)[-1], dt.time(22), tzinfo=dt.UTC)


def live(lake, at=None):
    """The desk of the account at the broker, this evening."""
    return desk(lake, "live", at or evening(lake))


def trade_live(lake):
    """Trade the account at the broker this evening; its plans."""
    followed(live(lake).trade(), lambda _: None)
    return live(lake).plans()


def test_an_account_at_a_broker_places_what_is_approved_and_is_reconciled_with_it_the_next_evening(home, exchange):
    lake, _ = home
    plans = trade_live(lake)
    (plan,) = plans["plan_id"]
    assert (plans["status"][0], exchange.orders) == ("waiting", [])
    live(lake).approve(plan, "ann", "I looked")
    assert [order["client_order_id"] for order in exchange.orders] == [f"{plan}-{s}" for s in ("AAA", "BBB", "CCC")]
    assert live(lake).due() == []
    exchange.open_exchange()
    land(lake, N_SESSIONS + 1)
    plans = trade_live(lake)
    state = states(lake, "live")[-1]
    assert state.session == days_of(lake)[-1]
    assert state.shares == pytest.approx(exchange.positions)
    assert not state.differences
    assert plans["status"][0] == "filled"


def test_a_plan_that_a_silent_broker_left_is_not_placed_on_a_later_evening(home, exchange):
    lake, _ = home
    (plan,) = trade_live(lake)["plan_id"]
    exchange.faults["POST /v2/orders"].append("unavailable")
    with pytest.raises(ExecutionError, match="must answer, but did not for order"):
        live(lake).approve(plan, "ann", "I looked")
    land(lake, N_SESSIONS + 2)
    assert live(lake).due() == days_of(lake)[-1:]
    trade_live(lake)
    assert exchange.orders == []
    (event,) = [e for e in JsonlAudit(lake.home).events("live") if e.kind == "cancelled"]
    assert (event.plan_id, event.reason) == (plan, "the session it was to be placed for has passed")


def test_a_plan_that_was_approved_without_an_order_made_of_it_is_cancelled_on_a_later_evening(home, exchange):
    lake, _ = home
    (plan,) = trade_live(lake)["plan_id"]
    exchange.faults["GET /v2/account"].append("unavailable")
    with pytest.raises(BrokerTimeout):
        live(lake).approve(plan, "ann", "I looked")
    land(lake, N_SESSIONS + 1)
    assert trade_live(lake).filter(plan_id=plan)["status"].to_list() == ["cancelled"]
    assert exchange.orders == []


def test_a_plan_at_a_broker_is_not_approved_once_the_exchange_has_opened_or_later_bars_are_there(home, exchange):
    lake, _ = home
    (plan,) = trade_live(lake)["plan_id"]
    at = evening(lake)
    following = sessions(at.date() + dt.timedelta(days=1), at.date() + dt.timedelta(days=9))[0].item()
    opened = dt.datetime.combine(following, dt.time(9, 30), ZoneInfo("America/New_York"))
    with pytest.raises(ExecutionError, match=f"must be placed before the exchange opens on {following}, which it has"):
        live(lake, opened).approve(plan, "ann", "I looked")
    land(lake, N_SESSIONS + 1)
    with pytest.raises(ExecutionError, match="so the fill session of its plan has passed"):
        live(lake).approve(plan, "ann", "I looked")
    assert not [event for event in JsonlAudit(lake.home).events("live") if event.kind == "approved"]
    assert exchange.orders == []


def test_nobody_but_a_person_acknowledges_what_is_found_in_a_plan_at_a_broker(home, exchange):
    lake, _ = home
    trade_live(lake)
    replay = partial(trade, account="live", at=evening(lake))
    for attempt in (
        lambda: replay(lake),
        lambda: replay(lake, None, days_of(lake)[-1]),
        lambda: executed(live(lake), lambda _: None, acknowledge=True),
    ):
        with pytest.raises(ExecutionError, match=r"acknowledged by the r.* must be kept here, but live is at a broker"):
            attempt()
    assert live(lake).plans()["status"].to_list() == ["waiting"]
    assert exchange.orders == []


def test_an_account_at_a_broker_does_not_open_in_the_past(home, exchange):
    lake, run = home
    with pytest.raises(ExecutionError, match="begins on a day of the past must be kept here"):
        trade(lake, run.as_parent.window[0], account="live", at=evening(lake), acknowledge=False)
    assert exchange.requests == []
    assert not book_path(lake.home, "live").exists()


def approved_live(lake):
    """The orders of the first plan are at the broker; its id."""
    (plan,) = trade_live(lake)["plan_id"]
    live(lake).approve(plan, "ann", "I looked")
    return plan


@pytest.mark.parametrize("step", [trade_live, lambda lake: live(lake).execute()], ids=["trade", "execute"])
def test_while_trading_is_stopped_what_waits_at_the_broker_is_cancelled_though_nothing_is_due(home, exchange, step):
    lake, _ = home
    plan = approved_live(lake)
    halt(lake.home, JsonlAudit(lake.home), "ann", "news", lambda: AT)
    assert live(lake).due() == []
    step(lake)
    assert [order["status"] for order in exchange.orders] == ["canceled"] * 3
    events = [each for each in JsonlAudit(lake.home).events("live") if each.kind == "cancelled"]
    assert {each.order_id for each in events} == {f"{plan}-{name}" for name in ("AAA", "BBB", "CCC")}
    assert all("news" in each.reason for each in events)


def test_stopping_cancels_at_the_broker_itself_and_says_what_may_still_be_open(home, exchange, monkeypatch):
    lake, _ = home
    approved_live(lake)
    stop = Stop("news", "ann", lambda: AT)
    monkeypatch.delenv("APCA_API_KEY_ID")
    cancelled, still_open = withdraw_all(lake.home, stop)
    assert cancelled == []
    assert "APCA_API_KEY_ID is not set" in still_open["live"]
    monkeypatch.setenv("APCA_API_KEY_ID", KEYS[0])
    cancelled, still_open = withdraw_all(lake.home, stop)
    assert (sorted(cancelled), still_open) == (sorted(order["client_order_id"] for order in exchange.orders), {})
    assert SqliteBook(lake.home, "live").open_orders() == []
    assert withdraw_all(lake.home, stop) == ([], {})


def test_what_was_cancelled_while_the_audit_was_damaged_is_told_by_the_next_session(home, exchange):
    lake, _ = home
    plan, log = approved_live(lake), JsonlAudit(lake.home)
    whole = log.path.read_bytes()
    log.path.write_bytes(whole.replace(b"AAA", b"XXX", 1))
    cancelled, still_open = withdraw_all(lake.home, Stop("news", "ann", lambda: AT))
    assert sorted(cancelled) == [f"{plan}-{name}" for name in ("AAA", "BBB", "CCC")]
    assert still_open == {}
    log.path.write_bytes(whole)
    land(lake, N_SESSIONS + 1)
    trade_live(lake)
    told = [each for each in JsonlAudit(lake.home).events("live") if each.kind == "cancelled"]
    assert sorted((each.order_id, each.reason) for each in told) == [(key, "news") for key in sorted(cancelled)]


def test_an_order_that_is_filled_when_trading_is_stopped_stays_a_fill(home, exchange):
    lake, _ = home
    plan = approved_live(lake)
    exchange.open_exchange()
    assert withdraw_all(lake.home, Stop("news", "ann", lambda: AT)) == ([], {})
    land(lake, N_SESSIONS + 1)
    assert trade_live(lake).filter(plan_id=plan)["status"].to_list() == ["filled"]
    state = states(lake, "live")[-1]
    assert not state.differences
    assert state.shares == pytest.approx(exchange.positions)


def test_the_tables_of_the_loop_have_the_account(home):
    lake, run = home
    first = run.as_parent.window[0]
    days = [day for day in days_of(lake) if day >= first]
    trade(lake, first, days[7])
    desk(lake).mirror()
    rows = Warehouse(lake.home).read(PORTFOLIO_STATE, {"account": ["paper"]}).sort("session")
    kept = states(lake)
    assert rows["equity"].to_list() == [state.equity for state in kept]
    assert rows["session"].to_list() == [state.session for state in kept]
