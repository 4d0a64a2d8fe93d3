"""Reset of a simulated account: its book is emptied, its past stays in the audit."""

from collections import Counter

import pytest

from nvtrader_pipelines.execution.errors import ExecutionError
from nvtrader_pipelines.storage.account_book import SqliteBook
from nvtrader_pipelines.storage.errors import StorageError
from tests.desk.desks import add_account, days_of, desk, states, trade

pytestmark = pytest.mark.slow


@pytest.fixture
def home(trading_home):
    return trading_home


@pytest.fixture
def days(home):
    """Sessions of the policy's tests."""
    store, run = home
    return [day for day in days_of(store) if day >= run.as_parent.window[0]]


def test_reset_account_repeats_its_history_with_events_of_its_own(home, days):
    store, _ = home
    add_account(store, "other")
    trade(store, days[0], days[3], account="other")
    trade(store, days[0], days[8])
    booked, events = states(store), store.audit.events("paper")
    event = desk(store).reset("ann", "a wrong start")
    assert (event.kind, event.by, event.reason, event.session) == ("reset", "ann", "a wrong start", days[8])
    assert states(store) == []
    assert desk(store).plans().is_empty()
    assert store.audit.events("paper") == [event]
    for until in (days[2], days[8]):  # book and audit agree at every opening of the desk
        trade(store, days[0], until)
    assert states(store) == booked
    again = store.audit.events("paper")
    assert Counter(each.kind for each in again) == Counter(each.kind for each in [event, *events])
    assert store.audit.verify().n_rows == len({row.event_id for row in store.audit.rows()})
    assert states(store, "other")[-1].session == days[3]
    assert desk(store).reset("ann", "once more").event_id != event.event_id


def test_reset_killed_before_the_book_is_emptied_is_completed_by_trading(home, days, monkeypatch):
    store, _ = home
    trade(store, days[0], days[8])
    with monkeypatch.context() as patch:
        patch.setattr(SqliteBook, "clear", lambda _: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            desk(store).reset("ann", "a wrong start")
    trade(store, days[1], days[4])
    assert [state.session for state in states(store)] == days[:5]


def test_reset_account_is_traded_by_steps_of_their_own(home, days):
    store, _ = home
    trade(store, days[0], days[8])
    desk(store).reset("ann", "a wrong start")
    steps = desk(store)
    steps.execute()
    opened = states(store)
    steps.settle()
    steps.propose()
    assert states(store)[0] == opened[0]


def test_account_that_cannot_be_reset_is_left_unchanged(home, days):
    store, _ = home
    with pytest.raises(ExecutionError):
        desk(store).reset("ann", "why")
    trade(store, days[0], days[2])
    before = store.audit.path.read_bytes()
    with pytest.raises(ExecutionError):
        desk(store).reset("ann", " ")
    add_account(store, "paper", "alpaca")
    with pytest.raises(ExecutionError):
        desk(store).reset("ann", "why")
    add_account(store, "broker", "alpaca")
    SqliteBook(store.home, "broker").settle(states(store)[-1].model_copy(update={"kept_at": "at Alpaca (paper)"}))
    add_account(store, "broker")  # its book was opened at a broker
    with pytest.raises(StorageError):
        desk(store, "broker").reset("ann", "why")
    assert store.audit.path.read_bytes() == before
    assert len(states(store)) == 4
