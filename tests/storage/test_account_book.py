import datetime as dt
import sqlite3
from contextlib import closing

import numpy as np
import pytest

from nvtrader_pipelines.execution.book import AccountState, BookedOrder
from nvtrader_pipelines.execution.orders import Fill, Order
from nvtrader_pipelines.storage.account_book import SqliteBook, book_path
from nvtrader_pipelines.storage.errors import StorageError

MONDAY = dt.date(2024, 1, 8)
FRACTION = 0.1 + 0.2  # not 0.3: floats are stored exactly


def state(session=MONDAY, **changes) -> AccountState:
    content = {
        "session": session,
        "symbols": ("AAA", "cash"),
        "weights": (FRACTION, 1.0 - FRACTION),
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
        "quantity": FRACTION,
        "quote": 7.0,
        "target_weight": 0.3,
        "session": MONDAY,
    }
    return BookedOrder.accept(Order.model_validate({**content, **changes}))


def fill(booked, **changes) -> Fill:
    placed = booked.order
    content = {"order_id": placed.order_id, "symbol": placed.symbol, "side": "buy", "quantity": FRACTION, "price": 7.1}
    return Fill.model_validate({**content, "cost": 0.01, "session": MONDAY, "complete": True, **changes})


@pytest.fixture
def book(home):
    opened = SqliteBook(home, "paper")
    yield opened
    opened.close()


def test_missing_book_reads_as_empty_and_is_not_created(book, home):
    assert (book.last(), book.states(), book.opening(), book.at(MONDAY)) == (None, [], None, None)
    assert book.open_orders() == book.orders("p") == book.fills("p") == []
    assert not book_path(home, "paper").exists()


def test_empty_book_file_is_refused_and_stays_empty(book, home):
    path = book_path(home, "paper")
    path.parent.mkdir(parents=True)
    path.touch()
    for use in (book.last, book.index, lambda: book.settle(state())):
        with pytest.raises(StorageError):
            use()
    assert {each.name: each.stat().st_size for each in path.parent.iterdir()} == {path.name: 0}


def test_book_without_tables_reads_as_missing_and_can_be_written(book, home):
    book_path(home, "paper").parent.mkdir(parents=True)
    with closing(sqlite3.connect(book_path(home, "paper"))) as new:
        new.execute("PRAGMA journal_mode = WAL")
    assert (book.last(), book.opening()) == (None, None)
    book.settle(state())
    assert book.last() == state()


def test_restored_book_is_read_whole_after_reading_a_lost_one(book, home):
    path = book_path(home, "paper")
    book.settle(state())
    book.close()
    copy = path.read_bytes()
    SqliteBook(home, "paper").states()
    assert [each.name for each in path.parent.iterdir()] == [path.name]
    path.write_bytes(b"")
    with pytest.raises(StorageError):
        SqliteBook(home, "paper").states()
    assert [each.name for each in path.parent.iterdir()] == [path.name]
    path.write_bytes(copy)
    assert book.states() == [state()]


def test_states_are_stored_once_per_session_and_exactly(book, home):
    later = state(MONDAY + dt.timedelta(days=1))
    for each in (later, state(), state(equity=0.5)):
        book.settle(each)
    again = SqliteBook(home, "paper")
    assert again.states() == [state(), later]
    assert again.last() == later
    assert (again.at(MONDAY), again.opening()) == (state(), MONDAY)
    again.close()


LATER_FIELDS = (
    *("flow", "income", "expected", "working", "counted"),
    *("gross_before_cap", "financing", "cap_turnover", "cap_cost"),
)


def test_state_without_later_fields_is_read_with_defaults(book, home):
    book.settle(state())
    later = ", ".join(f"'$.{name}'" for name in LATER_FIELDS)
    with closing(sqlite3.connect(book_path(home, "paper"))) as file, file:
        file.execute(f"UPDATE states SET document = json_remove(document, {later})")
    assert book.last() == state(counted=None)


def test_order_is_stored_once_and_filled_or_cancelled_once(book):
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


def test_unknown_order_is_neither_filled_nor_cancelled(book):
    book.place(order())
    book.fill([fill(order("ZZZ"))], {})
    book.cancel("unknown", "")
    assert book.fills("p" * 16) == []
    assert [each.status for each in book.orders("p" * 16)] == ["accepted"]


def test_place_stores_all_orders_or_none(book):
    class Broken:
        order = None

    with pytest.raises(AttributeError):
        book.place(order(), Broken())
    assert book.orders("p" * 16) == []
    book.place(order(), order("BBB"))
    assert book.orders("p" * 16) == [order(), order("BBB")]


def test_fill_that_fails_midway_stores_nothing(book, monkeypatch):
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


def test_settle_is_durable_and_visible_to_other_connections(book, home):
    book.settle(state())
    with sqlite3.connect(book_path(home, "paper")) as other:
        assert other.execute("SELECT COUNT(*) FROM states").fetchone() == (1,)
    other.close()
    assert book._book.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert book._book.execute("PRAGMA synchronous").fetchone() == (2,)


def test_file_that_is_no_database_is_refused_with_restore_steps(book, home):
    book_path(home, "paper").parent.mkdir(parents=True)
    book_path(home, "paper").write_bytes(b"this is no database at all" * 50)
    with pytest.raises(StorageError, match="move it"):
        book.last()


def test_folder_in_place_of_book_is_refused_without_restore_steps(book, home):
    book_path(home, "paper").mkdir(parents=True)
    with pytest.raises(StorageError, match="try again"):
        book.last()


@pytest.mark.parametrize("table", ["states", "orders", "fills"])
def test_damaged_row_is_refused_with_the_path_of_the_book(table, book, home):
    book.settle(state())
    book.place(order())
    book.fill([fill(order())], {})
    with sqlite3.connect(book_path(home, "paper")) as other:
        other.execute(f"UPDATE {table} SET document = substr(document, 1, 30)")
    other.close()
    read = {"states": book.last, "orders": lambda: book.orders("p" * 16), "fills": lambda: book.fills("p" * 16)}
    with pytest.raises(StorageError, match=r"paper\.db"):
        read[table]()
