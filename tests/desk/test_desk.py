import datetime as dt
import subprocess
import sys
from functools import partial
from zoneinfo import ZoneInfo

import numpy as np
import polars as pl
import pytest

from nvtrader_pipelines.desk import traded_market
from nvtrader_pipelines.desk.account_backtests import account_backtest, open_deployment
from nvtrader_pipelines.desk.halt import halt, resume
from nvtrader_pipelines.evaluation.step_generators import drain
from nvtrader_pipelines.execution.brokers import simulated_venue
from nvtrader_pipelines.execution.errors import ExecutionError, NotReconciled, TradingHalted
from nvtrader_pipelines.execution.plan_decision import Approve, Override, Reject
from nvtrader_pipelines.execution.reconciliation import Difference
from nvtrader_pipelines.storage.account_book import book_path
from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.tables import EVALUATIONS, PORTFOLIO_STATE
from tests.desk.desks import add_account, days_of, desk, evening, make_active, states, trade
from tests.promotion.activations import OTHER, forget_activations, put_unreadable
from tests.runs.small_runs import N_SESSIONS, land
from tests.runs.untrained import AT, planned, sealed

pytestmark = pytest.mark.slow
HOLD = (
    "import fcntl, sys; f = open(sys.argv[1], 'a'); fcntl.flock(f, fcntl.LOCK_EX); print('held', flush=True); input()"
)


@pytest.fixture
def home(trading_home):
    return trading_home


@pytest.mark.parametrize("settings", ["", "currency: EUR\nacknowledge: true\nfirst_plan_turnover: 1.0\n"])
def test_replayed_equity_equals_the_backtest(home, settings):
    store, run = home
    store.home.accounts.mkdir(exist_ok=True)
    (store.home.accounts / "paper.yaml").write_text(f"kind: simulated\n{settings}")
    first, last = run.as_parent.window
    progress = trade(store, first, last)
    days = [day for day in days_of(store) if first <= day <= last]
    booked = states(store)
    assert [state.session for state in booked[1:]] == days
    assert [step.stage for step in progress] == ["equity.update"] * len(booked) + ["done"]
    assert progress[-2].share == 1.0
    tested = account_backtest(open_deployment(store, run.run_id, run.experiment), booked[0].session, booked[-1].session)
    np.testing.assert_allclose([state.equity for state in booked[1:]], tested["equity"].to_list(), rtol=1e-12)
    assert not any(state.differences for state in booked)
    assert desk(store).plans()["status"].to_list()[1:] == ["filled"] * (len(desk(store).plans()) - 1)


def test_interrupted_replay_resumes_with_equal_states(home):
    store, run = home
    first = run.as_parent.window[0]
    days = [day for day in days_of(store) if day >= first]
    last = days[16]
    trade(store, first, last)
    add_account(store, "halves")
    for until in (days[3], days[9], last):
        steps = desk(store, "halves").trade(first, until, acknowledge=True)
        next(steps, None)
        steps.close()  # as by Ctrl-C
        trade(store, first, until, account="halves")
    whole, halves = states(store), states(store, "halves")
    assert [state.model_dump(exclude={"plan_id"}) for state in halves] == [
        state.model_dump(exclude={"plan_id"}) for state in whole
    ]


def test_account_opens_at_the_last_session_and_trades_later_ones(home):
    store, _ = home
    (last,) = desk(store).due()
    assert last == days_of(store)[-1]
    trade(store)
    assert [state.session for state in states(store)] == [last]
    assert desk(store).due() == []
    assert len(desk(store).plans()) == 1
    land(store, N_SESSIONS + 3)
    fresh = days_of(store)[-3:]
    assert desk(store).due() == fresh
    trade(store)
    assert [state.session for state in states(store)] == [last, *fresh]
    assert states(store)[1].plan_id is not None


def test_single_steps_make_up_a_session(home):
    store, _ = home
    days = days_of(store)[-12:]
    add_account(store, "steps")
    trade(store, days[0], days[0], account="steps")
    one = desk(store, "steps")
    one.execute()  # earlier due sessions are traded in full
    state = one.settle()
    assert state.session == days[-1]
    one.propose()
    one.clear()
    assert one.clear() == []
    assert desk(store, "steps").due() == []
    assert one.execute() == []
    assert len(states(store, "steps")) == len(days) + 1


def test_desk_without_active_policy_raises(home):
    store, _ = home
    forget_activations(store)
    with pytest.raises(StorageError):
        desk(store).due()
    with pytest.raises(StorageError):
        trade(store)
    assert not book_path(store.home, "paper").exists()


def test_unreadable_activation_stops_trading(home):
    store, _ = home
    put_unreadable(store)
    with pytest.raises(StorageError):
        trade(store)
    assert not book_path(store.home, "paper").exists()


@pytest.mark.parametrize("sharpe", [None, 0.0])
def test_untested_policy_does_not_trade(home, sharpe):
    store, run = home
    where = {"spec_hash": [run.spec_hash], "run_id": [run.run_id]}
    rows = store.tables.read(EVALUATIONS)
    store.tables.replace(EVALUATIONS, rows.with_columns(sharpe=pl.lit(sharpe, pl.Float64)), where)
    with pytest.raises(StorageError):
        trade(store)
    assert not book_path(store.home, "paper").exists()


def test_policy_with_old_tests_does_not_begin_to_trade(home, monkeypatch):
    store, run = home
    days = days_of(store)
    trade(store, days[-3], days[-2])
    monkeypatch.setattr(traded_market, "MAX_TEST_AGE", -1)
    add_account(store, "late")
    with pytest.raises(ExecutionError):
        trade(store, account="late")
    assert not states(store, "late")
    trade(store)  # a policy that trades already continues
    for n, policy in enumerate((f"{run.experiment}/seed-{run.seeds[0]}", run.experiment), start=1):
        make_active(store, run, policy, at=AT + dt.timedelta(days=n))
    with pytest.raises(ExecutionError):  # an activation begins anew
        trade(store)


@pytest.fixture
def rule(home):
    """Sealed run of a rule with the evaluation of the home's policy."""
    store, run = home
    other = sealed(store, planned(store, OTHER))
    where = {"spec_hash": [other.spec_hash], "run_id": [other.run_id]}
    rows = store.tables.read(EVALUATIONS, {"run_id": [run.run_id]}).filter(pl.col("policy") == run.experiment)
    mine = {"policy": other.experiment, "spec_hash": other.spec_hash, "run_id": other.run_id}
    store.tables.replace(
        EVALUATIONS, rows.with_columns(pl.lit(value).alias(name) for name, value in mine.items()), where
    )
    return other


def test_rule_does_not_trade_a_market_of_other_symbols(home, rule):
    store, _ = home
    make_active(store, rule, at=AT + dt.timedelta(days=1))
    days = days_of(store)[-3:]
    trade(store, days[0], days[1])
    before, events = states(store), store.audit.events()
    for n_symbols in (2, 4):
        land(store, n_symbols=n_symbols)
        for step in (lambda: trade(store), desk(store).execute):
            with pytest.raises(StorageError):
                step()
        assert (states(store), store.audit.events()) == (before, events)
    land(store)
    trade(store)
    assert [state.session for state in states(store)[-3:]] == days


def test_account_begins_within_tests_and_market(home):
    store, run = home
    days, (first, _) = days_of(store), run.as_parent.window
    before = days[days.index(first) - 1]
    for sessions in ((before,), (first, before), (days[-1] + dt.timedelta(days=30),)):
        with pytest.raises(ExecutionError):
            trade(store, *sessions)
    assert not book_path(store.home, "paper").exists()


def test_session_is_not_traded_before_its_close(home):
    store, _ = home
    *_, before, last = days_of(store)
    noon, closed = (dt.datetime.combine(last, dt.time(hour), ZoneInfo("America/New_York")) for hour in (12, 16))
    assert desk(store, at=noon).due() == [before]
    with pytest.raises(ExecutionError):
        trade(store, last, at=noon)
    first = days_of(store)[-4]
    for at, ends in ((noon, before), (noon, before), (closed, last)):
        trade(store, first, last, at=at)
        assert states(store)[-1].session == ends
        assert desk(store, at=at).due() == []
    assert len(states(store)) == 5
    with pytest.raises(ExecutionError):
        desk(store, at=dt.datetime(2000, 1, 1, tzinfo=dt.UTC)).due()


def test_open_account_cannot_begin_at_another_session(home):
    store, run = home
    days, (first, _) = days_of(store), run.as_parent.window
    trade(store, first, days[days.index(first) + 2])
    with pytest.raises(ExecutionError):
        trade(store, days[days.index(first) + 1])
    assert len(states(store)) == 4


@pytest.mark.parametrize("changed", ["alpaca", "simulated\ncapital: 25_000"])
def test_account_with_changed_file_is_refused_and_keeps_its_book(home, changed):
    store, _ = home
    trade(store)
    before = states(store)
    add_account(store, "paper", changed)
    with pytest.raises(StorageError):
        desk(store, at=evening(store)).due()
    assert states(store) == before
    (store.home.accounts / "paper.yaml").unlink()
    assert desk(store).due() == []


@pytest.mark.parametrize(
    ("file", "text", "rule"),
    [
        ("limits.yaml", "restricted: [AAA, BBB, CCC]\n", "restricted_list"),
        ("loss_sales.csv", "symbol,date\nAAA,{day}\nBBB,{day}\nCCC,{day}\n", "wash_sale_window_days"),
    ],
)
def test_compliance_files_are_read_again_at_each_trade(home, file, text, rule):
    store, run = home
    days = [day for day in days_of(store) if day >= run.as_parent.window[0]]
    trade(store, days[0], days[2])
    n_before, path = len(desk(store).plans()), store.home.compliance / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text.format(day=days[2]))
    try:
        trade(store, days[0], days[12])
    finally:
        path.unlink()
    found = desk(store).plans()
    assert any(rule in each for each in found.head(len(found) - n_before)["findings"])
    trade(store, days[0], days[24])
    assert rule not in desk(store).plans()["findings"][0]


def test_second_process_cannot_trade_a_locked_account(home):
    store, _ = home
    trade(store)
    lock = book_path(store.home, "paper").with_suffix(".lock")
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(lock)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        for attempt in (desk(store).due, desk(store).execute, lambda: trade(store)):
            with pytest.raises(StorageError):
                attempt()
        other.communicate("\n")
    assert desk(store).due() == []


def test_plan_is_decided_once_and_its_orders_follow(home):
    store, _ = home
    trade(store, acknowledge=False)
    plans = desk(store).plans()
    assert plans["status"].to_list() == ["waiting"]
    plan = plans["plan_id"][0]
    with pytest.raises(ExecutionError):
        desk(store).decide("0123", Approve(), "ann")
    with pytest.raises(ExecutionError):
        desk(store).decide(plan, Reject(reason=" "), "ann")
    assert desk(store).decide(plan, Approve(reason="I looked"), "ann").kind == "approved"
    for answer in (Approve(), Override(reason="again"), Reject(reason="again")):
        with pytest.raises(ExecutionError):
            desk(store).decide(plan, answer, "bob")
    assert [event.by for event in store.audit.events("paper") if event.kind == "approved"] == ["ann"]
    land(store, N_SESSIONS + 1)
    trade(store, acknowledge=False)
    assert desk(store).plans()["status"].to_list() == ["filled"]


def test_halted_account_of_the_present_holds_day_by_day_until_resumed(home):
    store, _ = home
    last = days_of(store)[-1]
    trade(store)
    halt(store, "ann", "news", lambda: AT)
    for n_later in (1, 2):
        land(store, N_SESSIONS + n_later)
        trade(store)
    fresh = days_of(store)[-2:]
    assert [state.session for state in states(store)] == [last, *fresh]
    assert [event.session for event in store.audit.events("paper") if event.kind == "halted"] == fresh
    assert not states(store)[-1].shares
    land(store, N_SESSIONS + 4)
    for refused in (partial(trade, store), desk(store).execute, desk(store).settle):
        with pytest.raises(TradingHalted) as stopped:
            refused()
        assert (stopped.value.account, stopped.value.session) == ("paper", fresh[-1])
    resume(store, "ann", "over", lambda: AT)
    trade(store)
    assert states(store)[-1].session == days_of(store)[-1]


def test_halted_replay_stays_at_its_last_close_until_resumed(home):
    store, run = home
    first = run.as_parent.window[0]
    days = [day for day in days_of(store) if day >= first]
    trade(store, first, days[1])
    steps = desk(store).trade(first, days[8], acknowledge=True)
    next(steps)
    halt(store, "ann", "news", lambda: AT)
    before = store.audit.path.read_bytes()
    for refused in (partial(next, steps), partial(trade, store), partial(trade, store, first, days[8])):
        with pytest.raises(TradingHalted) as stopped:
            refused()
        assert (stopped.value.account, stopped.value.session) == ("paper", days[2])
        assert "`nvtrader resume`" in str(stopped.value)
    assert states(store)[-1].session == days[2]
    assert store.audit.path.read_bytes() == before
    resume(store, "ann", "over", lambda: AT)
    trade(store, first, days[8])
    assert states(store)[-1].session == days[8]
    assert not [event for event in store.audit.events("paper") if event.kind == "halted"]


def test_account_with_differences_stops_until_they_are_accepted(home, monkeypatch):
    store, run = home
    days = [day for day in days_of(store) if day >= run.as_parent.window[0]]
    trade(store, days[0], days[3])
    found = [[Difference("AAA", 10.0, 7.0)]]
    monkeypatch.setattr(simulated_venue, "reconcile", lambda *_: found.pop() if found else [])
    progress = []
    with pytest.raises(NotReconciled) as stopped:
        drain(desk(store).trade(days[0], days[8], acknowledge=True), progress.append)
    assert (len(progress), states(store)[-1].session) == (1, days[4])  # reported before it stops
    assert f"paper differed at the close of {days[4]}: AAA: 10 shares expected, 7 held (-3);" in str(stopped.value)
    assert "`nvtrader portfolio accept-differences --account paper" in str(stopped.value)
    before = store.audit.path.read_bytes()
    one = desk(store)
    for refused in (partial(trade, store, days[0], days[8]), one.execute, one.propose, one.clear):
        with pytest.raises(NotReconciled):
            refused()
    with pytest.raises(ExecutionError):
        one.accept("ann", " ")
    assert store.audit.path.read_bytes() == before
    event = one.accept("ann", "I looked")
    assert (event.kind, event.by, event.session, event.reason) == ("accepted", "ann", days[4], "I looked")
    assert event.detail["differences"] == ["AAA: 10 shares expected, 7 held (-3)"]
    trade(store, days[0], days[8])
    assert states(store)[-1].session == days[8]
    with pytest.raises(ExecutionError):
        one.accept("ann", "again")


def test_mirror_writes_the_states_of_the_account(home):
    store, run = home
    first = run.as_parent.window[0]
    days = [day for day in days_of(store) if day >= first]
    trade(store, first, days[7])
    desk(store).mirror()
    rows = store.tables.read(PORTFOLIO_STATE, {"account": ["paper"]}).sort("session")
    booked = states(store)
    assert rows["equity"].to_list() == [state.equity for state in booked]
    assert rows["session"].to_list() == [state.session for state in booked]
