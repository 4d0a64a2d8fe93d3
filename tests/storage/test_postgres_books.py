"""Locks, account books and the kill switch of homes in one Postgres."""

import datetime as dt
import signal

import pytest
import sqlalchemy as sa

from nvtrader_pipelines.desk.account_access import AccountInUse, lock_account
from nvtrader_pipelines.desk.halt import Scope, halt, resume
from nvtrader_pipelines.storage.account_book import SqliteBook, book_path
from nvtrader_pipelines.storage.errors import NotFoundError, StorageError, UnavailableError
from nvtrader_pipelines.storage.home import create_home
from nvtrader_pipelines.storage.kill_switch import FileKillSwitch
from nvtrader_pipelines.storage.locks import home_lock, is_locked, try_lock
from nvtrader_pipelines.storage.moving import move_databases
from nvtrader_pipelines.storage.postgres import parse_url
from nvtrader_pipelines.storage.postgres_book import PostgresBook
from nvtrader_pipelines.storage.research_files import SessionFolder
from nvtrader_pipelines.storage.store import Store
from tests.storage.table_rows import start
from tests.storage.test_account_book import MONDAY, fill, order, state

pytestmark = pytest.mark.nightly

AT = dt.datetime(2022, 3, 10, 15, 30, tzinfo=dt.UTC)
PLAN = "p" * 16
ACCOUNT = "a-fund"
PRELUDE = """
import sys, time
from pathlib import Path
from nvtrader_pipelines.desk.account_access import AccountInUse, lock_account
from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.locks import home_lock
from nvtrader_pipelines.storage.research_files import SessionFolder
from nvtrader_pipelines.storage.store import Store
home = Home(Path(sys.argv[1]))
"""
HOLD = "with {}:\n    print('held', flush=True)\n    time.sleep(60)\n"
TRADE = """
try:
    with lock_account(Store(home), "paper"):
        print("trades", flush=True)
        time.sleep(float(sys.argv[2]))
except AccountInUse:
    print("in use", flush=True)
"""


@pytest.fixture
def homes(database, tmp_path):
    """Stores of two homes with the same database."""
    return [Store(create_home(tmp_path / name)) for name in ("one", "two")]


def end_sessions(database):
    """End all connections of the database, as a restart of the server does."""
    engine = sa.create_engine(parse_url(database, "postgresql"))
    with engine.connect() as connection:
        connection.execute(
            sa.text("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()")
        )
    engine.dispose()


def use(book):
    """Main calls of a book, and all that it then holds."""
    first, second = order(), order("BBB")
    later = state(MONDAY + dt.timedelta(days=1))
    for session in (later, state(), state(equity=0.5)):
        book.settle(session)
    book.place(second, first, order(quantity=9.0))
    book.fill([fill(first), fill(order("ZZZ"))], {second.order.order_id: "100% no volume?"})
    book.cancel(first.order.order_id, "too late")
    book.place(order("CCC"), order("AAA", "q" * 16))
    read = (book.index(), book.last(), book.at(MONDAY), book.opening(), book.states(), book.newest_states(1))
    return *read, book.orders(PLAN), book.open_orders(), book.fills(PLAN), book.fills("q")


@pytest.mark.parametrize("lock", ["home_lock(home, 'one')", "SessionFolder.of(home, 's').lock()"])
def test_lock_excludes_another_machine_until_its_process_is_killed(homes, lock):
    one, two = (store.home for store in homes)
    folder = SessionFolder.of(two, "s")
    with start(PRELUDE + HOLD.format(lock), one.root) as holder:
        assert holder.stdout.readline() == "held\n"
        if "Session" in lock:
            assert folder.is_running
            with pytest.raises(StorageError), folder.lock():
                pass
        else:
            with try_lock(two, "one", two.root / "unused") as held:
                assert held is None
        with home_lock(two, "other"), try_lock(two, "third", two.root / "unused") as held:
            held()
        holder.send_signal(signal.SIGKILL)
    with home_lock(two, "one"), folder.lock():
        assert is_locked(one, "one", one.root)
        assert folder.is_running
    assert not folder.is_running
    assert not is_locked(one, "one", one.root)


def test_lock_is_free_again_after_an_error_and_its_loss_is_named_once(homes, database):
    home = homes[0].home
    for _ in range(20):  # more than the pool keeps
        with pytest.raises(KeyError), home_lock(home, "one"):
            raise KeyError
    with pytest.raises(UnavailableError), home_lock(home, "one"):
        end_sessions(database)
    with pytest.raises(KeyError), home_lock(home, "one"):
        raise KeyError(end_sessions(database))
    with home_lock(home, "one"):
        assert is_locked(home, "one", home.root)


def test_one_of_two_machines_trades_an_account(homes):
    processes = [start(PRELUDE + TRADE, store.home.root, 6) for store in homes]
    assert sorted(process.communicate(timeout=60)[0] for process in processes) == ["in use\n", "trades\n"]
    with lock_account(homes[0], "paper"), pytest.raises(AccountInUse), lock_account(homes[1], "paper"):
        pass


def test_account_whose_lock_is_lost_takes_no_order(homes, database):
    with pytest.raises(UnavailableError), lock_account(homes[0], "paper") as book:  # noqa: PT012
        book.settle(state())
        end_sessions(database)
        with pytest.raises(UnavailableError):
            book.place(order())
        with lock_account(homes[1], "paper") as other:
            other.place(order("BBB"))
        with pytest.raises(UnavailableError):
            book.place(order())
    assert [booked.order.symbol for booked in homes[0].book("paper").orders(PLAN)] == ["BBB"]


def test_book_in_postgres_holds_what_one_in_sqlite_does(homes, database):
    book = homes[0].book(ACCOUNT)
    assert (book.exists, book.last(), book.open_orders(), book.index().fills) == (False, None, [], frozenset())
    assert not homes[0].books()
    file = SqliteBook(homes[1].home, ACCOUNT)
    assert use(book) == use(file)
    assert isinstance(book, PostgresBook)
    (name,) = homes[1].books()
    assert (name, homes[1].book(ACCOUNT).states()) == (ACCOUNT, file.states())
    homes[1].book(ACCOUNT).clear()
    assert book.exists
    assert (book.index().orders, book.states(), book.fills(PLAN)) == (frozenset(), [], [])
    with pytest.raises(NotFoundError), lock_account(homes[0], '../x", ledger'):
        pass
    with pytest.raises(StorageError):
        homes[0].book("a" * 59)
    assert list(homes[0].books()) == [ACCOUNT]


def test_halt_on_one_machine_stops_the_other_until_it_resumes(homes):
    one, two = homes
    assert one.switch.halt_reason() is None
    halt(one, "ann", "news", lambda: AT)
    assert "ann" in two.switch.halt_reason()
    assert two.switch_of("paper").state().by == "ann"
    halt(two, "bob", "thin", lambda: AT, Scope("paper", "reducing"))
    resume(two, "bob", "over", lambda: AT)
    assert one.switch.halt_reason() is None
    assert one.switch_of("paper").state().state == "reducing"
    one.home.kill_switch.parent.mkdir(parents=True)
    one.home.kill_switch.touch()  # by any program
    assert (one.switch.halt_reason() is not None, two.switch.halt_reason()) == (True, None)
    halt(one, "ann", "again", lambda: AT)
    assert two.switch.halt_reason()
    resume(one, "ann", "over", lambda: AT)
    assert one.switch.halt_reason() is two.switch.halt_reason() is None
    assert not one.home.kill_switch.exists()


def test_halt_does_not_wait_for_a_machine_that_hangs_in_another(homes, monkeypatch):
    monkeypatch.setattr("nvtrader_pipelines.storage.kill_switch.LOCK_PAUSES", (0.0,))
    one, two = homes
    with home_lock(one.home, "kill_switch"):
        halt(two, "ann", "news", lambda: AT)
        assert "ann" in one.switch.halt_reason()


def test_database_out_of_reach_counts_as_halted_and_a_halt_stays(homes, server, monkeypatch, database):
    store = homes[0]
    monkeypatch.setenv("NVTRADER_DATABASE_URL", server.get_uri("no_such"))
    assert "createdb" in store.switch.halt_reason()
    for attempt in (halt, resume):
        with pytest.raises(StorageError):
            attempt(store, "ann", "news", lambda: AT)
    with pytest.raises(UnavailableError):
        store.book("paper").last()
    with pytest.raises(UnavailableError):
        store.books()
    monkeypatch.setenv("NVTRADER_DATABASE_URL", database)
    assert "ann" in store.switch.halt_reason()  # by the file


def test_books_and_switch_move_to_postgres_and_back(homes, database, tmp_path, monkeypatch):
    home = homes[0].home
    monkeypatch.delenv("NVTRADER_DATABASE_URL")
    use(SqliteBook(home, ACCOUNT))
    halt(Store(home), "ann", "news", lambda: AT, Scope(ACCOUNT, "reducing"))
    before = (SqliteBook(home, ACCOUNT).index(), SqliteBook(home, ACCOUNT).orders(PLAN))
    monkeypatch.setenv("NVTRADER_DATABASE_URL", database)
    moved = {row.table: row.n_rows for row in move_databases(home, back=False)}
    assert (moved[f"book {ACCOUNT}.orders"], moved["kill switch.halts"]) == (4, 1)
    assert not any(row.is_new for row in move_databases(home, back=False))  # again: nothing to do
    book = homes[1].book(ACCOUNT)
    assert (book.index(), book.orders(PLAN)) == before
    assert homes[1].switch_of(ACCOUNT).state().state == "reducing"
    book.place(order("DDD"))  # numbered after those copied
    with pytest.raises(StorageError, match="other rows"):
        move_databases(home, back=True)
    for path in (*home.warehouse.glob("*.db*"), *book_path(home, "").parent.glob("*.db*")):
        path.rename(tmp_path / path.name)
    FileKillSwitch(home, ACCOUNT).remove()
    move_databases(home, back=True)
    assert [booked.order.symbol for booked in SqliteBook(home, ACCOUNT).orders(PLAN)] == ["BBB", "AAA", "CCC", "DDD"]
    assert FileKillSwitch(home, ACCOUNT).state().state == "reducing"
