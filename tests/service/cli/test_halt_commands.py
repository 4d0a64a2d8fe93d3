import getpass
import json
import os
import sqlite3
from contextlib import closing

import pytest

from nvtrader_pipelines.desk.account_access import connect_account
from nvtrader_pipelines.execution.audit import EventDetails, plan_event
from nvtrader_pipelines.execution.book import BookedOrder
from nvtrader_pipelines.execution.brokers.account_spec import AlpacaAccountSpec
from nvtrader_pipelines.execution.orders import Order
from nvtrader_pipelines.service.cli.exit_codes import BAD_INPUT, FAILED
from nvtrader_pipelines.storage.account_book import SqliteBook, book_path
from nvtrader_pipelines.storage.kill_switch import VARIABLE, FileKillSwitch
from nvtrader_pipelines.storage.store import Store
from tests.execution.brokers.alpaca_stub import KEYS, AlpacaStub, serving
from tests.service.cli.error_lines import is_one_line_error
from tests.service.cli.sample_plans import AT, SESSION, append_plan, plan


@pytest.fixture
def invoke(home, command):
    return command(home)


def kinds(home):
    return [(event.kind, event.by, event.reason) for event in Store(home).audit.events()]


def test_halt_engages_kill_switch_and_halting_twice_is_recorded(home, invoke):
    first, again = invoke("halt", "--reason", "bars look wrong [/]"), invoke("halt", "--reason", "once more")
    assert (first.exit_code, again.exit_code) == (0, 0)
    assert first.stdout == "trading is stopped: bars look wrong [/]\n"
    assert again.stdout.startswith("trading is stopped already: ")
    assert "bars look wrong" in (FileKillSwitch(home).halt_reason() or "")
    rows = kinds(home)
    assert rows[0] == ("halted", getpass.getuser(), "bars look wrong [/]")
    assert [(kind, reason[:34]) for kind, _, reason in rows[1:]] == [("halted", "once more; it was stopped already:")]


def test_resume_releases_kill_switch_and_is_recorded(home, invoke):
    invoke("halt", "--reason", "why")
    found, again = invoke("resume", "--reason", "fixed"), invoke("resume")
    assert (found.exit_code, again.exit_code) == (0, 0)
    assert "may resume" in found.stdout
    assert "was not stopped" in again.stdout
    assert FileKillSwitch(home).halt_reason() is None
    assert kinds(home)[-1] == ("resumed", getpass.getuser(), "fixed")


def test_resume_names_variable_that_still_stops_trading(home, invoke, monkeypatch):
    monkeypatch.setenv(VARIABLE, "1")
    invoke("halt")
    document = json.loads(invoke("resume", "--json").stdout)
    assert VARIABLE in document["message"]
    assert VARIABLE in document["kill_switch"]


def test_halt_by_user_without_name_records_user_number(home, invoke, monkeypatch):
    monkeypatch.setattr(getpass, "getuser", lambda: {}["nobody"])
    assert invoke("halt").exit_code == 0
    assert kinds(home) == [("halted", f"user {os.getuid()}", "no reason was given")]


@pytest.fixture
def exchange(home, monkeypatch):
    """A stub of Alpaca's API with an account `live` and an open order."""
    monkeypatch.setenv("APCA_API_KEY_ID", KEYS[0])
    monkeypatch.setenv("APCA_API_SECRET_KEY", KEYS[1])
    live_plan = append_plan(home, plan(account="live"))
    with serving(AlpacaStub()) as stub:
        home.accounts.mkdir(parents=True)
        (home.accounts / "live.yaml").write_text(f"kind: alpaca\nbase_url: {stub.url}\nretries: 0\n")
        place(home, stub, live_plan, "AAA")
        yield stub


def place(home, stub, of, symbol):
    """Place an order of a plan at the stub and in the book."""
    order = Order(
        order_id=f"{of.plan_id}-{symbol}", plan_id=of.plan_id, account="live", symbol=symbol, side="buy", quantity=2.0,
        quote=100.0, target_weight=0.25, session=SESSION,
    )  # fmt: skip
    connect_account("live", AlpacaAccountSpec(base_url=stub.url, retries=0)).submit(order)
    with closing(SqliteBook(home, "live")) as book:
        book.place(BookedOrder.accept(order))


def test_halt_cancels_open_orders_at_broker(exchange, invoke):
    found = invoke("halt", "--reason", "news")
    assert found.exit_code == 0
    order = exchange.orders[0]
    assert order["status"] == "canceled"
    assert found.stdout.splitlines() == ["trading is stopped: news", f"cancelled: {order['client_order_id']}"]
    assert json.loads(invoke("halt", "--json").stdout)["still_open"] == {}


def test_halt_cancels_other_orders_after_one_failed_cancellation(exchange, home, invoke):
    for symbol in ("BBB", "CCC"):
        place(home, exchange, plan(account="live"), symbol)
    exchange.faults["GET /v2/orders:by_client_order_id"].append("unavailable")  # to the first
    found = invoke("halt", "--reason", "news")
    stuck, *cancelled_orders = exchange.orders
    assert [order["status"] for order in exchange.orders] == ["accepted", "canceled", "canceled"]
    assert found.exit_code == FAILED
    _, cancelled, loud = found.stdout.splitlines()
    assert cancelled == f"cancelled: {cancelled_orders[0]['client_order_id']}, {cancelled_orders[1]['client_order_id']}"
    assert stuck["client_order_id"] in loud
    recorded = [event.order_id for event in Store(home).audit.events() if event.kind == "cancelled"]
    assert recorded == [order["client_order_id"] for order in cancelled_orders]
    assert invoke("halt").exit_code == 0
    assert stuck["status"] == "canceled"


@pytest.mark.parametrize(
    ("fault", "reason"), [("keys", "APCA_API_SECRET_KEY is not set"), ("silence", "did not answer (HTTP 503)")]
)
def test_halt_with_unreachable_broker_engages_and_names_open_account(
    exchange, home, invoke, monkeypatch, fault, reason
):
    if fault == "keys":
        monkeypatch.delenv("APCA_API_SECRET_KEY")
    else:
        exchange.faults["GET /v2/orders:by_client_order_id"].append("unavailable")
    found = invoke("halt", "--reason", "news")
    assert found.exit_code == FAILED
    assert FileKillSwitch(home).halt_reason()
    stopped, loud = found.stdout.splitlines()
    assert stopped == "trading is stopped: news"
    assert loud.startswith("ORDERS MAY STILL BE OPEN on the account live: ")
    assert reason in loud
    assert exchange.orders[0]["status"] == "accepted"


@pytest.mark.parametrize(
    ("left", "reason"),
    [
        ("no book", "the audit has orders that the book lacks: "),
        ("no file", "there is no account 'live'"),
    ],
)
def test_halt_with_missing_book_names_orders_of_the_audit_until_they_end(exchange, home, invoke, left, reason):
    live_plan, order_id = plan(account="live"), exchange.orders[0]["client_order_id"]
    with closing(SqliteBook(home, "live")) as book:
        (booked,) = book.orders(live_plan.plan_id)
    detail = {"order": booked.order.model_dump(mode="json")}
    Store(home).audit.append(
        [plan_event("placed", live_plan, AT, "desk", EventDetails(order_id, "AAA", detail=detail))]
    )
    for path in book_path(home, "live").parent.iterdir():
        path.unlink()
    if left == "no file":
        (home.accounts / "live.yaml").unlink()
    found = invoke("halt", "--reason", "news")
    assert found.exit_code == FAILED
    stopped, loud = found.stdout.splitlines()
    assert stopped == "trading is stopped: news"
    assert loud.startswith(f"ORDERS MAY STILL BE OPEN on the account live: {reason}")
    assert (order_id in loud) == (left != "no file")
    Store(home).audit.append([plan_event("cancelled", live_plan, AT, "desk", EventDetails(order_id, "AAA"))])
    assert invoke("halt").exit_code == 0


def test_halt_with_empty_book_warns_of_open_orders_until_it_is_restored(exchange, home, invoke):
    path = book_path(home, "live")
    with closing(sqlite3.connect(path)) as book:
        book.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    content = path.read_bytes()
    for each in path.parent.iterdir():
        each.unlink()
    path.touch()
    found = invoke("halt", "--reason", "news")
    assert found.exit_code == FAILED
    assert f"ORDERS MAY STILL BE OPEN on the account live: {path}, the book of an account, is empty" in found.stdout
    path.write_bytes(content)
    assert invoke("halt").exit_code == 0
    assert exchange.orders[0]["status"] == "canceled"


def test_halt_of_simulated_account_with_missing_book_succeeds(home, invoke):
    live_plan = append_plan(home, plan())
    detail = {"order": {"order_id": f"{live_plan.plan_id}-AAA"}}
    Store(home).audit.append(
        [plan_event("placed", live_plan, AT, "desk", EventDetails(f"{live_plan.plan_id}-AAA", "AAA", detail=detail))]
    )
    assert invoke("halt").exit_code == 0


def damage_audit(home, monkeypatch):
    path = Store(home).audit.path
    path.write_bytes(path.read_bytes().replace(b"BBB", b"XXX", 1))


def fill_disk(home, monkeypatch):
    def refuse(*_arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("nvtrader_pipelines.storage.kill_switch.write_atomically", refuse)
    monkeypatch.setattr("nvtrader_pipelines.storage.audit_log.JsonlAudit._write", refuse)
    book_path(home, "paper").touch()
    book_path(home, "paper").with_name("paper.lock").mkdir()  # the lock of a simulated account cannot be made


def write_protect(home, monkeypatch):
    def refuse(*_arguments):
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr("nvtrader_pipelines.storage.kill_switch.write_atomically", refuse)
    monkeypatch.setattr("pathlib.Path.touch", refuse)
    shared = book_path(home, "live").with_name("live.db-shm")  # the book can be read but not written
    shared.mkdir()


@pytest.mark.parametrize(
    ("spoil", "error", "output", "is_halted"),
    [
        (damage_audit, "trading is stopped, but the audit lacks the event: line 1 of the audit", "cancelled: ", True),
        (fill_disk, "cannot be written: No space left on device", "cancelled: ", True),
        (
            write_protect,
            "cannot be written (Read-only file system), so it stops nothing; set NVTRADER_KILL_SWITCH=1",
            "ORDERS MAY",
            False,
        ),
    ],
    ids=["audit", "disk", "read-only"],
)
def test_halt_that_cannot_be_stored_cancels_orders_and_exits_with_3(
    exchange, home, invoke, monkeypatch, spoil, error, output, is_halted
):
    spoil(home, monkeypatch)
    found = invoke("halt", "--reason", "news")
    assert exchange.orders[0]["status"] == "canceled"
    assert found.exit_code == BAD_INPUT
    assert found.stdout.startswith(output)
    assert is_one_line_error(found.stderr)
    assert error in found.stderr
    assert bool(FileKillSwitch(home).halt_reason()) == is_halted


def test_halt_json_with_damaged_audit_holds_error_and_cancelled_orders(exchange, home, invoke, monkeypatch):
    damage_audit(home, monkeypatch)
    found = invoke("halt", "--json")
    document = json.loads(found.stdout)
    assert found.exit_code == BAD_INPUT
    assert document["message"].startswith("trading is stopped, but the audit lacks the event: ")
    assert (document["cancelled"], document["still_open"]) == ([exchange.orders[0]["client_order_id"]], {})
