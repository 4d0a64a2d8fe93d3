import datetime as dt
import re
import subprocess
import sys
from functools import partial
from zoneinfo import ZoneInfo

import numpy as np
import polars as pl
import pytest

from nvtrader_pipelines.desk import market
from nvtrader_pipelines.desk.backtest import account_backtest, deployment_of
from nvtrader_pipelines.desk.halt import halt, resume
from nvtrader_pipelines.evaluation.steps import drain
from nvtrader_pipelines.execution.brokers import simulated_venue
from nvtrader_pipelines.execution.errors import ExecutionError, NotReconciled
from nvtrader_pipelines.execution.reconciliation import Difference
from nvtrader_pipelines.storage.account_book import book_path
from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.tables import EVALUATIONS, PORTFOLIO_STATE
from tests.desk.desks import add_account, days_of, desk, evening, make_active, states, trade
from tests.promotion.activations import OTHER, forget_activations
from tests.runs.small_runs import N_SESSIONS, land
from tests.runs.untrained import AT, planned, sealed

HOLD = (
    "import fcntl, sys; f = open(sys.argv[1], 'a'); fcntl.flock(f, fcntl.LOCK_EX); print('held', flush=True); input()"
)


@pytest.fixture
def home(trading_home):
    return trading_home


def test_a_history_is_traded_day_by_day_and_its_equity_is_the_back_tests(home):
    store, run = home
    first, last = run.as_parent.window
    told = trade(store, first, last)
    days = [day for day in days_of(store) if first <= day <= last]
    kept = states(store)
    assert [state.session for state in kept[1:]] == days
    assert [step.stage for step in told] == ["equity.update"] * len(kept) + ["done"]
    assert told[-2].share == 1.0
    tested = account_backtest(deployment_of(store, run.run_id, run.experiment), kept[0].session, kept[-1].session)
    np.testing.assert_allclose([state.equity for state in kept[1:]], tested["equity"].to_list(), rtol=1e-12)
    assert not any(state.differences for state in kept)
    assert desk(store).plans()["status"].to_list()[1:] == ["filled"] * (len(desk(store).plans()) - 1)


def test_a_history_goes_on_where_it_stopped_and_ends_the_same(home):
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


def test_an_account_without_a_first_session_opens_at_the_last_and_trades_the_next_once_it_is_there(home):
    store, _ = home
    (last,) = desk(store).due()
    assert last == days_of(store)[-1]
    trade(store)
    assert [state.session for state in states(store)] == [last]
    assert desk(store).due() == []
    assert len(desk(store).plans()) == 1
    try:
        land(store, N_SESSIONS + 3)
        fresh = days_of(store)[-3:]
        assert desk(store).due() == fresh
        trade(store)
        assert [state.session for state in states(store)] == [last, *fresh]
        assert states(store)[1].plan_id is not None
    finally:
        land(store)


def test_the_steps_of_a_session_one_by_one_are_the_session_whole(home):
    store, _ = home
    days = days_of(store)[-12:]
    add_account(store, "steps")
    trade(store, days[0], days[0], account="steps")
    one = desk(store, "steps")
    one.execute()  # whatever is due before the last session is traded whole
    state = one.settle()
    assert state.session == days[-1]
    one.propose()
    one.clear()
    assert one.clear() == []
    assert desk(store, "steps").due() == []
    assert one.execute() == []
    assert len(states(store, "steps")) == len(days) + 1


def test_without_an_active_policy_nothing_trades(home):
    store, _ = home
    forget_activations(store)
    with pytest.raises(StorageError, match="no policy is active"):
        desk(store).due()
    with pytest.raises(StorageError, match="no policy is active"):
        trade(store)
    assert not book_path(store.home, "paper").exists()


def test_a_pointer_that_is_damaged_or_gone_stops_trading(home):
    store, _ = home
    store.home.active_policy.write_text("{")
    with pytest.raises(StorageError, match="cannot be read as the active policy"):
        trade(store)
    store.home.active_policy.unlink()
    with pytest.raises(StorageError, match="it is gone, and the audit has one"):
        trade(store)
    assert not book_path(store.home, "paper").exists()


@pytest.mark.parametrize("sharpe", [None, 0.0])
def test_a_policy_that_was_never_tested_does_not_trade(home, sharpe):
    store, run = home
    where = {"spec_hash": [run.spec_hash], "run_id": [run.run_id]}
    rows = store.tables.read(EVALUATIONS)
    store.tables.replace(EVALUATIONS, rows.with_columns(sharpe=pl.lit(sharpe, pl.Float64)), where)
    try:
        with pytest.raises(StorageError, match="must have been tested before it trades"):
            trade(store)
        assert not book_path(store.home, "paper").exists()
    finally:
        store.tables.replace(EVALUATIONS, rows, where)


def test_a_policy_whose_tests_lie_too_far_back_does_not_begin_to_trade(home, monkeypatch):
    store, run = home
    days, last = days_of(store), run.as_parent.window[1]
    trade(store, days[-3], days[-2])
    monkeypatch.setattr(market, "MAX_TEST_AGE", -1)
    add_account(store, "late")
    with pytest.raises(ExecutionError, match=f"was tested to {last}"):
        trade(store, account="late")
    assert not states(store, "late")
    trade(store)  # what has begun goes on
    for n, policy in enumerate((f"{run.experiment}/seed-{run.seeds[0]}", run.experiment), start=1):
        make_active(store, run, policy, at=AT + dt.timedelta(days=n))
    with pytest.raises(ExecutionError, match=f"was tested to {last}"):  # what is activated again begins again
        trade(store)


@pytest.fixture
def rule(home):
    """A rule of the home that has the verdict of its policy."""
    store, run = home
    other = sealed(store, planned(store, OTHER))
    where = {"spec_hash": [other.spec_hash], "run_id": [other.run_id]}
    rows = store.tables.read(EVALUATIONS, {"run_id": [run.run_id]}).filter(pl.col("policy") == run.experiment)
    mine = {"policy": other.experiment, "spec_hash": other.spec_hash, "run_id": other.run_id}
    store.tables.replace(
        EVALUATIONS, rows.with_columns(pl.lit(value).alias(name) for name, value in mine.items()), where
    )
    yield other
    store.tables.replace(EVALUATIONS, rows.clear(), where)


def test_a_rule_does_not_trade_a_market_of_other_names_than_it_was_tested_on(home, rule):
    store, _ = home
    make_active(store, rule, at=AT + dt.timedelta(days=1))
    days = days_of(store)[-3:]
    trade(store, days[0], days[1])
    before, said = states(store), store.audit.events()
    try:
        for n_symbols, found in ((2, "2 symbols (AAA, BBB), without CCC"), (4, "CCC, DDD), with DDD")):
            land(store, n_symbols=n_symbols)
            refused = rf"other of run \w+ cannot trade on the market as it is now: .*{re.escape(found)}; use the panel"
            for step in (lambda: trade(store), desk(store).execute):
                with pytest.raises(StorageError, match=refused):
                    step()
            assert (states(store), store.audit.events()) == (before, said)
    finally:
        land(store)
    trade(store)
    assert [state.session for state in states(store)[-3:]] == days


def test_an_account_does_not_begin_before_the_policys_tests_nor_after_the_market(home):
    store, run = home
    days, (first, _) = days_of(store), run.as_parent.window
    before = days[days.index(first) - 1]
    with pytest.raises(ExecutionError, match=f"may trade from {first} on"):
        trade(store, before)
    with pytest.raises(ExecutionError, match=f"the last session to trade, {before}, is before the first, {first}"):
        trade(store, first, before)
    with pytest.raises(ExecutionError, match=f"the market ends on {days[-1]}"):
        trade(store, days[-1] + dt.timedelta(days=30))
    assert not book_path(store.home, "paper").exists()


def test_a_session_that_goes_on_is_not_traded_before_its_close(home):
    store, _ = home
    *_, before, last = days_of(store)
    noon, closed = (dt.datetime.combine(last, dt.time(hour), ZoneInfo("America/New_York")) for hour in (12, 16))
    assert desk(store, at=noon).due() == [before]
    with pytest.raises(ExecutionError, match=f"have ended and their bars are there, but the market ends on {before}"):
        trade(store, last, at=noon)
    first = days_of(store)[-4]
    for at, ends in ((noon, before), (noon, before), (closed, last)):
        trade(store, first, last, at=at)
        assert states(store)[-1].session == ends
        assert desk(store, at=at).due() == []
    assert len(states(store)) == 5
    with pytest.raises(ExecutionError, match=r"the last that has is 1999-12-31, and the market begins on .*; set"):
        desk(store, at=dt.datetime(2000, 1, 1, tzinfo=dt.UTC)).due()


def test_an_account_that_was_opened_at_another_session_does_not_begin_anew(home):
    store, run = home
    days, (first, _) = days_of(store), run.as_parent.window
    trade(store, first, days[days.index(first) + 2])
    with pytest.raises(ExecutionError, match=r"was opened at .* and goes on from where it stands"):
        trade(store, days[days.index(first) + 1])
    assert len(states(store)) == 4


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ("alpaca", "opened as one kept here and data/accounts says it is kept at Alpaca, on paper;"),
        ("simulated\ncapital: 25_000", r"here with a capital of 1,000,000\.0 and .* here with a capital of 25,000\.0;"),
    ],
)
def test_an_account_that_its_file_makes_another_is_refused_and_keeps_its_book(home, changed, sentence):
    store, _ = home
    trade(store)
    before = states(store)
    add_account(store, "paper", changed)
    with pytest.raises(StorageError, match=sentence):
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
def test_what_compliance_is_told_while_a_desk_is_open_counts_the_next_time_it_trades(home, file, text, rule):
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


def test_a_second_process_is_told_that_the_account_is_traded(home):
    store, _ = home
    trade(store)
    lock = book_path(store.home, "paper").with_suffix(".lock")
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(lock)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        for attempt in (desk(store).due, desk(store).execute, lambda: trade(store)):
            with pytest.raises(StorageError, match="traded by another process at this moment"):
                attempt()
        other.communicate("\n")
    assert desk(store).due() == []


def test_a_person_answers_a_plan_once_and_its_orders_follow(home):
    store, _ = home
    trade(store, acknowledge=False)
    plans = desk(store).plans()
    assert plans["status"].to_list() == ["waiting"]
    plan = plans["plan_id"][0]
    with pytest.raises(ExecutionError, match="has no plan 0123"):
        desk(store).approve("0123", "ann")
    with pytest.raises(ExecutionError, match="with a reason"):
        desk(store).reject(plan, "ann", "")
    assert desk(store).approve(plan, "ann", "I looked").kind == "approved"
    for answer in ("approve", "override", "reject"):
        with pytest.raises(ExecutionError, match="decided on once, but"):
            getattr(desk(store), answer)(plan, "bob", "again")
    assert [event.by for event in store.audit.events("paper") if event.kind == "approved"] == ["ann"]
    try:
        land(store, N_SESSIONS + 1)
        trade(store, acknowledge=False)
        assert desk(store).plans()["status"].to_list() == ["filled"]
    finally:
        land(store)


def test_a_halted_desk_holds_and_goes_on_once_it_is_resumed(home):
    store, run = home
    first = run.as_parent.window[0]
    days = [day for day in days_of(store) if day >= first]
    trade(store, first, days[1])
    before = states(store)[-1]
    halt(store, "ann", "news", lambda: AT)
    trade(store, first, days[8])
    held = states(store)[-1]
    assert {name: round(n, 6) for name, n in held.shares.items()} == {n: round(x, 6) for n, x in before.shares.items()}
    halted = [event.session for event in store.audit.events("paper") if event.kind == "halted"]
    assert halted == days[2:9]
    resume(store, "ann", "over", lambda: AT)
    trade(store, first, days[10])
    assert states(store)[-1].plan_id is not None or states(store)[-2].plan_id is not None


def test_an_account_that_differs_trades_on_nowhere_until_a_person_accepts_it(home, monkeypatch):
    store, run = home
    days = [day for day in days_of(store) if day >= run.as_parent.window[0]]
    trade(store, days[0], days[3])
    found = [[Difference("AAA", 10.0, 7.0)]]
    monkeypatch.setattr(simulated_venue, "reconcile", lambda *_: found.pop() if found else [])
    told = []
    with pytest.raises(NotReconciled) as stopped:
        drain(desk(store).trade(days[0], days[8], acknowledge=True), told.append)
    assert (len(told), states(store)[-1].session) == (1, days[4])  # told of before it stops there
    assert f"paper differed at the close of {days[4]}: AAA: 10 shares expected, 7 held (-3);" in str(stopped.value)
    assert "`nvtrader portfolio accept-differences --account paper" in str(stopped.value)
    before = store.audit.path.read_bytes()
    one = desk(store)
    for refused in (partial(trade, store, days[0], days[8]), one.execute, one.propose, one.clear):
        with pytest.raises(NotReconciled, match=re.escape(str(stopped.value))):
            refused()
    with pytest.raises(ExecutionError, match="with a reason"):
        one.accept("ann", " ")
    assert store.audit.path.read_bytes() == before
    event = one.accept("ann", "I looked")
    assert (event.kind, event.by, event.session, event.reason) == ("accepted", "ann", days[4], "I looked")
    assert event.detail["differences"] == ["AAA: 10 shares expected, 7 held (-3)"]
    trade(store, days[0], days[8])
    assert states(store)[-1].session == days[8]
    with pytest.raises(ExecutionError, match=f"paper held the expected shares at the close of {days[8]}"):
        one.accept("ann", "again")


def test_the_tables_of_the_loop_have_the_account(home):
    store, run = home
    first = run.as_parent.window[0]
    days = [day for day in days_of(store) if day >= first]
    trade(store, first, days[7])
    desk(store).mirror()
    rows = store.tables.read(PORTFOLIO_STATE, {"account": ["paper"]}).sort("session")
    kept = states(store)
    assert rows["equity"].to_list() == [state.equity for state in kept]
    assert rows["session"].to_list() == [state.session for state in kept]
