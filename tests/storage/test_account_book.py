import datetime as dt
import sqlite3
from contextlib import closing

import numpy as np
import pytest

from nvtrader_pipelines.execution.book import AccountState, BookedOrder, BookIndex
from nvtrader_pipelines.execution.orders import Fill, Order
from nvtrader_pipelines.storage.account_book import SqliteBook, book_path
from nvtrader_pipelines.storage.errors import StorageError

MONDAY = dt.date(2024, 1, 8)
TENTH = 0.1 + 0.2  # not 0.3: floats are kept exactly


def state(session=MONDAY, **changes) -> AccountState:
    content = {
        "session": session,
        "symbols": ("AAA", "cash"),
        "weights": (TENTH, 1.0 - TENTH),
        "equity": np.nextafter(1.0, 2.0).item(),
        "peak": 1.1,
        "recent_returns": (1e-17, -0.01),
        "capital": 1e6,
        "kept_at": "here",
        "shares": {"AAA": 1 / 3},
        "prices": {"AAA": 7.0},
        "policy": "small",
        "run_id": "0" * 16,
        "spec_hash": "0" * 64,
    }
    return AccountState.model_validate({**content, **changes})


def order(symbol="AAA", plan="p" * 16, **changes) -> BookedOrder:
    content = {
        "order_id": f"{plan}-{symbol}",
        "plan_id": plan,
        "account": "paper",
        "symbol": symbol,
        "side": "buy",
        "quantity": TENTH,
        "quote": 7.0,
        "target_weight": 0.3,
        "session": MONDAY,
    }
    return BookedOrder.accept(Order.model_validate({**content, **changes}))


def fill(booked, **changes) -> Fill:
    placed = booked.order
    content = {"order_id": placed.order_id, "symbol": placed.symbol, "side": "buy", "quantity": TENTH, "price": 7.1}
    return Fill.model_validate({**content, "cost": 0.01, "session": MONDAY, "complete": True, **changes})


@pytest.fixture
def book(home):
    kept = SqliteBook(home, "paper")
    yield kept
    kept.close()


def test_a_book_that_is_not_there_says_so_and_is_not_made_by_reading(book, home):
    assert (book.last(), book.states(), book.opening(), book.at(MONDAY)) == (None, [], None, None)
    assert book.open_orders() == book.orders("p") == book.fills("p") == []
    assert not book_path(home, "paper").exists()


def test_an_empty_book_is_read_as_one_that_is_not_there_and_is_left_as_it_is(book, home):
    path = book_path(home, "paper")
    path.parent.mkdir(parents=True)
    path.touch()
    assert (book.last(), book.open_orders(), book.index()) == (
        None,
        [],
        BookIndex(frozenset(), frozenset(), frozenset()),
    )
    assert {each.name: each.stat().st_size for each in path.parent.iterdir()} == {path.name: 0}


def test_a_book_whose_first_writer_was_killed_before_its_tables_were_there_is_read_as_one_that_is_not_there(book, home):
    book_path(home, "paper").parent.mkdir(parents=True)
    with closing(sqlite3.connect(book_path(home, "paper"))) as begun:
        begun.execute("PRAGMA journal_mode = WAL")
    assert (book.last(), book.opening()) == (None, None)
    book.settle(state())
    assert book.last() == state()


def test_a_copy_that_is_put_back_is_read_whole_though_the_lost_book_was_looked_at_before(book, home):
    path = book_path(home, "paper")
    book.settle(state())
    book.close()
    copy = path.read_bytes()
    for lost in (copy, b""):
        path.write_bytes(lost)
        looking = SqliteBook(home, "paper")
        looking.states()
        assert [each.name for each in path.parent.iterdir()] == [path.name]
    path.write_bytes(copy)
    assert book.states() == [state()]


def test_states_are_kept_exactly_once_each_and_the_last_is_that_of_the_latest_session(book, home):
    later = state(MONDAY + dt.timedelta(days=1))
    for each in (later, state(), state(equity=0.5)):
        book.settle(each)
    again = SqliteBook(home, "paper")
    assert again.states() == [state(), later]
    assert again.last() == later
    assert (again.at(MONDAY), again.opening()) == (state(), MONDAY)
    again.close()


def test_a_state_of_before_an_account_knew_of_flows_is_read_as_one_without_any(book, home):
    book.settle(state())
    later = ", ".join(f"'$.{name}'" for name in ("flow", "income", "expected", "working", "counted"))
    with closing(sqlite3.connect(book_path(home, "paper"))) as file, file:
        file.execute(f"UPDATE states SET document = json_remove(document, {later})")
    assert book.last() == state(counted=None)


def test_an_order_is_kept_once_and_filled_or_cancelled_once(book):
    first, second = order(), order("BBB")
    for each in (first, second, order(quantity=9.0)):
        book.place(each)
    assert book.open_orders() == book.orders("p" * 16) == [first, second]
    book.fill([fill(first)], {second.order.order_id: "no volume"})
    book.fill([fill(first, quantity=5.0), fill(second)], {first.order.order_id: "too late"})
    book.cancel(first.order.order_id, "too late")
    assert book.fills("p" * 16) == [fill(first)]
    assert [(each.status, each.reason) for each in book.orders("p" * 16)] == [
        ("filled", ""),
        ("cancelled", "no volume"),
    ]
    assert book.open_orders() == []


def test_an_order_that_is_not_known_is_neither_filled_nor_cancelled(book):
    book.place(order())
    book.fill([fill(order("ZZZ"))], {})
    book.cancel("unknown", "")
    assert book.fills("p" * 16) == []
    assert [each.status for each in book.orders("p" * 16)] == ["accepted"]


def test_orders_are_kept_together_or_not_at_all(book):
    class Broken:
        order = None

    with pytest.raises(AttributeError):
        book.place(order(), Broken())
    assert book.orders("p" * 16) == []
    book.place(order(), order("BBB"))
    assert book.orders("p" * 16) == [order(), order("BBB")]


def test_an_effect_that_fails_in_the_middle_leaves_nothing(book, monkeypatch):
    first, second = order(), order("BBB")
    book.place(first)
    book.place(second)

    class Broken:
        order_id = second.order.order_id

        def model_dump_json(self):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        book.fill([fill(first), Broken()], {})
    assert book.fills("p" * 16) == []
    assert len(book.open_orders()) == 2


def test_each_effect_is_on_disk_when_it_returns(book, home):
    book.settle(state())
    with sqlite3.connect(book_path(home, "paper")) as other:
        assert other.execute("SELECT COUNT(*) FROM states").fetchone() == (1,)
    other.close()
    assert book._book.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert book._book.execute("PRAGMA synchronous").fetchone() == (2,)


def test_a_file_that_is_no_book_is_an_error_that_names_it(book, home):
    book_path(home, "paper").parent.mkdir(parents=True)
    book_path(home, "paper").write_bytes(b"this is no database at all" * 50)
    with pytest.raises(StorageError, match=r"cannot be used as the book .*; move it, its -wal and its -shm file"):
        book.last()


def test_where_something_is_in_the_way_of_a_book_no_copy_is_asked_for(book, home):
    book_path(home, "paper").mkdir(parents=True)
    with pytest.raises(StorageError, match=r"\(unable to open database file\); put that right, and try again"):
        book.last()


@pytest.mark.parametrize("table", ["states", "orders", "fills"])
def test_a_row_that_is_damaged_is_an_error_that_names_the_book(table, book, home):
    book.settle(state())
    book.place(order())
    book.fill([fill(order())], {})
    with sqlite3.connect(book_path(home, "paper")) as other:
        other.execute(f"UPDATE {table} SET document = substr(document, 1, 30)")
    other.close()
    read = {"states": book.last, "orders": lambda: book.orders("p" * 16), "fills": lambda: book.fills("p" * 16)}
    with pytest.raises(StorageError, match=r"paper\.db cannot be used as the book of an account"):
        read[table]()
