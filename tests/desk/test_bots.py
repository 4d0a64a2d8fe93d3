"""Bots that trade accounts: their start, their policy, and their protections."""

import itertools
from datetime import date, timedelta

import pytest

from nvtrader_pipelines.desk.bots import bot_status, list_bots, start_bot
from nvtrader_pipelines.desk.halt import Scope, halt
from nvtrader_pipelines.desk.rebalancing import skip_reason
from nvtrader_pipelines.desk.traded_policy import account_of_bot, bot_of, read_traded, require_own_policy
from nvtrader_pipelines.execution.errors import ExecutionError, TradingHalted
from nvtrader_pipelines.execution.journal import Journal
from nvtrader_pipelines.execution.orders import order_id, plan_id_of
from nvtrader_pipelines.market.calendar import NEW_YORK
from nvtrader_pipelines.promotion.active_policy import read_active, read_every_active
from nvtrader_pipelines.storage.errors import NotFoundError, StorageError
from tests.desk.desks import AT, add_account, days_of, desk, evening, make_active, states, trade
from tests.promotion.activations import LATER

pytestmark = pytest.mark.slow


def write_bot(store, name="robo", **fields):
    lines = [f"{field}: {value}" for field, value in {"policy": "active", "account": "paper", **fields}.items()]
    store.home.bots.mkdir(exist_ok=True)
    (store.home.bots / f"{name}.yaml").write_text("\n".join(lines))


SECONDS = itertools.count()


def start(store, name="robo"):
    """Start a bot a second after the one before."""
    at = evening(store) + timedelta(seconds=next(SECONDS))
    return start_bot(store, name, "ann", "tried", lambda: at)


@pytest.fixture
def store(trading_home, monkeypatch):
    monkeypatch.setattr("nvtrader_pipelines.promotion.recency.MAX_TEST_AGE", 1000)
    monkeypatch.setattr("nvtrader_pipelines.desk.traded_market.MAX_TEST_AGE", 1000)
    return trading_home[0]


def test_started_bot_trades_its_policy_on_its_account_alone(store):
    add_account(store, "coins")
    write_bot(store, account="coins", policy="small/seed-1")
    with pytest.raises(StorageError, match="bots start robo"):
        desk(store, "coins", evening(store)).due()
    status = start(store)
    assert (status.state, status.policy, status.problem) == ("active", "small/seed-1", "")
    assert [read_traded(store, account).policy for account in ("coins", "paper")] == ["small/seed-1", "small"]
    make_active(store, trading_run(store), at=LATER)  # of all accounts, later
    assert (read_active(store, "coins").policy, read_traded(store, "coins").policy) == ("small", "small/seed-1")
    with pytest.raises(StorageError, match="of its file"):
        require_own_policy(store, "coins")
    require_own_policy(store, "paper")
    trade(store, account="coins", at=evening(store))
    assert {state.policy for state in states(store, "coins")} == {"small/seed-1"}
    assert trading_run(store).run_id in {active.run_id for active in read_every_active(store)}
    events = [(event.kind, event.by) for event in store.audit.events("coins") if event.session is None]
    assert events == [("activated", "ann"), ("started", "ann")]


def trading_run(store):
    return store.policies.read_latest(read_active(store).partition_key)


def test_bot_is_skipped_until_a_person_starts_it(store):
    write_bot(store)
    session = days_of(store)[-1]
    assert (bot_status(store, "robo").state, bot_of(store, "paper").start) == ("stopped", None)
    assert "bots start robo" in skip_reason(store, "paper", session, NEW_YORK, "robo")
    start(store)
    assert skip_reason(store, "paper", session, NEW_YORK, "robo") is None
    assert skip_reason(store, "paper", session, NEW_YORK) == "the bot robo trades the account paper"
    write_bot(store, policy="small")
    assert "names small" in skip_reason(store, "paper", session, NEW_YORK, "robo")
    (store.home.bots / "robo.yaml").unlink()
    assert "no file" in skip_reason(store, "paper", session, NEW_YORK, "robo")


def test_account_of_a_started_bot_with_damaged_file_does_not_trade(store):
    write_bot(store)
    start(store)
    write_bot(store, schedule="'0 0 31 2 *'")
    with pytest.raises(StorageError, match="0 0 31 2"):
        trade(store, at=evening(store))
    (status,) = list_bots(store)
    assert (status.state, status.equity) == ("stopped", None)
    assert "0 0 31 2" in status.problem
    with pytest.raises(NotFoundError):
        start(store, "other")


def test_orders_of_a_bot_have_its_name(store):
    write_bot(store)
    start(store)
    first, *later = days_of(store)[-5:]
    trade(store, first, later[-1], at=evening(store))
    orders = [event.order_id for event in store.audit.events("paper") if event.kind == "placed"]
    plans = {event.plan_id for event in store.audit.events("paper") if event.kind == "placed"}
    assert orders
    assert all(order.startswith("robo.") for order in orders)
    assert set(map(plan_id_of, orders)) == plans


@pytest.mark.parametrize("bot", ["", "a-bot"])
@pytest.mark.parametrize("symbol", ["AAA", "BRK.B", "brk-b", "x.0123456789abcdef"])
def test_plan_id_is_read_from_every_order_id(bot, symbol):
    assert plan_id_of(order_id("0123456789abcdef", symbol, bot)) == "0123456789abcdef"


def test_policy_with_old_tests_is_refused_at_every_trade(store, monkeypatch):
    write_bot(store)
    start(store)
    first, second = days_of(store)[-3:-1]
    trade(store, first, first, at=evening(store))
    monkeypatch.setattr("nvtrader_pipelines.desk.traded_market.MAX_TEST_AGE", -500)
    with pytest.raises(ExecutionError, match="tested within"):
        trade(store, None, second, at=evening(store))
    with pytest.raises(ExecutionError, match="tested within"):
        start(store)


def test_drawdown_halts_the_bot_until_it_is_started_again(store):
    write_bot(store, limits="[{kind: max_drawdown, fraction: 0.001}]")
    start(store)
    first, *later = days_of(store)[-30:]
    with pytest.raises(TradingHalted, match="bots start robo"):
        trade(store, first, later[-1], at=evening(store))
    state, closes = store.switch_of("paper").state(), states(store)
    assert (state.state, state.by) == ("halted", "bot robo")
    assert [close.drawdown >= 0.001 for close in closes] == [False] * (len(closes) - 1) + [True]
    assert Journal(store.audit, "paper").is_halted(closes[-1].session)
    assert bot_status(store, "robo").locks
    assert start(store).state == "active"
    assert (bot_status(store, "robo").locks, bot_of(store, "paper").start.since) == ((), closes[-1].session)


def test_cooldown_reduces_the_bot_for_its_pause(store):
    write_bot(store, limits="[{kind: loss_cooldown, loss: 0.0001, sessions: 1, pause: 2}]")
    start(store)
    first, *later = days_of(store)[-30:]
    trade(store, first, later[-1], at=evening(store))
    closes = states(store)
    losses = {state.session for state in closes if state.net_return <= -0.0001}
    grown = 0
    for earlier, before, after in zip(closes, closes[1:], closes[2:], strict=False):
        names = {name for name, shares in after.shares.items() if shares > before.shares.get(name, 0.0) * (1.0 + 1e-12)}
        is_reducing = bool({earlier.session, before.session} & losses)
        assert not (is_reducing and names)
        grown += bool(names)
    assert grown
    assert store.switch_of("paper").state().state == "active"


def test_bot_of_another_calendar_than_its_account_is_refused(store, monkeypatch):
    write_bot(store)
    start(store)
    trade(store, at=evening(store))
    monkeypatch.setattr("nvtrader_pipelines.desk.traded_market.NEW_YORK", NEW_YORK)
    ledger = type(store.ledger)
    monkeypatch.setattr(ledger, "source_of", lambda *_: "coins")
    store.home.market_file.write_text("sources: [{kind: landing}, {kind: landing, name: coins, calendar: 24/7}]\n")
    assert "24/7" in bot_status(store, "robo").problem
    with pytest.raises(ExecutionError, match="24/7"):
        start(store)


def test_halt_of_one_account_leaves_the_bot_of_another(store):
    add_account(store, "other")
    for name, account in (("one", "paper"), ("two", "other")):
        write_bot(store, name, account=account)
        start(store, name)
    halt(store, "ann", "news", lambda: AT, Scope("other"))
    assert [(bot.bot, bot.state) for bot in list_bots(store)] == [("one", "active"), ("two", "halted")]
    assert skip_reason(store, "other", days_of(store)[-1], NEW_YORK, "two") is None  # its run records the halt


def test_bot_trades_the_policy_of_its_file_whatever_was_active_before(store):
    for policy in ("small/seed-1", "small", "small/seed-1"):  # small is active for all accounts
        write_bot(store, policy=policy)
        start(store)
        assert (read_traded(store, "paper").policy, bot_status(store, "robo").problem) == (policy, "")
    assert {active.bot for active in read_every_active(store)} == {"", "robo"}
    write_bot(store)
    start(store)
    assert read_traded(store, "paper").policy == "small"  # as the gate decides


def test_start_that_fails_to_be_recorded_changes_nothing(store, monkeypatch):
    write_bot(store, policy="small/seed-1")
    start(store)
    before = store.audit.path.read_bytes()
    write_bot(store, policy="small/seed-0")
    with monkeypatch.context() as patch:
        patch.setattr(type(store.audit), "append", refuse)
        with pytest.raises(StorageError):
            start(store)
    assert (store.audit.path.read_bytes(), read_traded(store, "paper")) == (before, None)
    write_bot(store, policy="small/seed-1")
    assert read_traded(store, "paper").policy == "small/seed-1"


def refuse(*_):
    raise StorageError("the disk is full")


def test_catching_up_ends_at_the_deadline_of_the_tests(store, monkeypatch):
    write_bot(store)
    start(store)
    *_, first, second, last = days_of(store)
    trade(store, first, first, at=evening(store))
    tested_to = trading_run(store).as_parent.window[1]
    age = (
        len(NEW_YORK.sessions(tested_to, second)) - 1
        if second > tested_to
        else 1 - len(NEW_YORK.sessions(second, tested_to))
    )
    monkeypatch.setattr("nvtrader_pipelines.desk.traded_market.MAX_TEST_AGE", age)
    with pytest.raises(ExecutionError, match="tested within"):
        trade(store, None, last, at=evening(store))
    assert states(store)[-1].session == second


def test_reset_account_counts_protections_from_its_new_opening(store):
    write_bot(store)
    start(store)
    trade(store, at=evening(store))
    start(store)
    assert bot_of(store, "paper").start.since == states(store)[-1].session
    desk(store, at=evening(store)).reset("ann", "again")
    assert bot_of(store, "paper").start.since == date.min


def test_bot_with_damaged_file_is_stopped_by_its_account(store):
    write_bot(store)
    start(store)
    write_bot(store, schedule="never")
    assert (account_of_bot(store, "robo"), list_bots(store)[0].account) == ("paper", "paper")
    with pytest.raises(NotFoundError):
        account_of_bot(store, "other")
