"""The account at Alpaca, against a server that speaks its API."""

import logging
import traceback
from collections.abc import Iterator
from dataclasses import replace
from datetime import date, timedelta

import pytest
from pydantic import SecretStr
from tenacity import wait_none

from nvtrader_pipelines.execution.brokers.account_spec import AlpacaAccountSpec
from nvtrader_pipelines.execution.brokers.alpaca import AlpacaBroker
from nvtrader_pipelines.execution.brokers.broker import BrokerTimeout
from nvtrader_pipelines.execution.errors import ExecutionError
from nvtrader_pipelines.execution.orders import Fill, Order, Side, order_id
from tests.execution.brokers.alpaca_stub import KEYS, AlpacaStub, Fault, serving

PLAN = "0123456789abcdef"
PLACE, LOOK_UP = "POST /v2/orders", "GET /v2/orders:by_client_order_id"


@pytest.fixture
def stub() -> Iterator[AlpacaStub]:
    with serving(AlpacaStub()) as server:
        yield server


@pytest.fixture
def broker(stub) -> AlpacaBroker:
    return connected(stub)


def connected(stub: AlpacaStub, keys: tuple[str, str] = KEYS, timeout_s=10.0, retries=2) -> AlpacaBroker:
    spec = AlpacaAccountSpec(base_url=stub.url, timeout_s=timeout_s, retries=retries)
    return replace(AlpacaBroker.connect(spec, SecretStr(keys[0]), SecretStr(keys[1])), backoff=wait_none())


def order(symbol="SPY", side: Side = "buy", quantity=2.5, plan=PLAN) -> Order:
    return Order(
        order_id=order_id(plan, symbol),
        plan_id=plan,
        account="alpaca",
        symbol=symbol,
        side=side,
        quantity=quantity,
        quote=100.0,
        target_weight=0.1,
        session=date(2024, 3, 5),
    )


def placed(stub: AlpacaStub) -> list[str]:
    return [each["symbol"] for each in stub.orders]


def test_orders_wait_for_the_open_and_are_filled_at_its_price(stub, broker):
    stub.positions, stub.prices["TLT"] = {"TLT": 7.0}, 90.0
    receipts = [broker.submit(order("TLT", "sell", 7.0)), broker.submit(order("SPY", "buy", 2.5))]
    assert [each.status for each in receipts] == ["accepted", "accepted"]
    assert {each.order_id for each in broker.open_orders()} == {f"{PLAN}-TLT", f"{PLAN}-SPY"}
    assert broker.fills(PLAN) == []

    stub.open_exchange()

    def fill(symbol, side, quantity, price):
        return Fill(order_id=f"{PLAN}-{symbol}", symbol=symbol, side=side, quantity=quantity, price=price, cost=0.0,
                    session=date(2024, 3, 5), complete=True)  # fmt: skip

    filled = sorted(broker.fills(PLAN), key=lambda each: each.symbol)
    assert filled == [fill("SPY", "buy", 2.5, 100.0), fill("TLT", "sell", 7.0, 90.0)]
    held = broker.holdings()
    assert (held.shares, held.cash, held.equity) == ({"SPY": 2.5}, 100_380.0, 100_630.0)
    assert broker.open_orders() == []


def test_orders_are_market_orders_for_the_day_with_own_ids(stub, broker):
    receipt = broker.submit(order())
    (sent,) = stub.orders
    assert (sent["type"], sent["time_in_force"], sent["client_order_id"]) == ("market", "day", f"{PLAN}-SPY")
    assert (receipt.order_id, receipt.broker_order_id) == (f"{PLAN}-SPY", sent["id"])


@pytest.mark.parametrize(
    ("quantity", "sent"),
    [(12.3456789019, "12.345678901"), (0.1 + 0.2, "0.3"), (7.0, "7.0"), (3.000000001, "3.000000001")],
)
def test_quantity_is_truncated_to_nine_decimals(stub, broker, quantity, sent):
    assert broker.submit(order(quantity=quantity)).status == "accepted"
    assert stub.orders[0]["qty"] == sent


def test_quantity_below_the_minimum_is_rejected_without_a_request(stub, broker):
    receipt = broker.submit(order(quantity=1e-10))
    assert receipt.status == "rejected"
    assert receipt.reason.startswith("1e-10 shares")
    assert stub.requests == []


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["lost", "silent", "dropped", "unavailable"])
def test_unanswered_order_is_looked_up_and_placed_once(stub, fault: Fault):
    broker = connected(stub, timeout_s=1.0 if fault in {"lost", "silent"} else 10.0)
    stub.faults[PLACE].append(fault)
    assert broker.submit(order()).status == "accepted"
    assert placed(stub) == ["SPY"]
    came = fault in {"silent", "dropped"}
    assert stub.requests == [PLACE, LOOK_UP] + [PLACE] * (not came)


@pytest.mark.slow
def test_submit_raises_without_an_answer_and_a_retry_places_once(stub):
    broker = connected(stub, timeout_s=1.0, retries=1)
    stub.faults[PLACE].extend(["silent"])
    stub.faults[LOOK_UP].extend(["unavailable"])
    with pytest.raises(BrokerTimeout):
        broker.submit(order())
    assert connected(stub).submit(order()).status == "accepted"
    assert placed(stub) == ["SPY"]


def test_requests_are_retried_as_often_as_configured(stub):
    stub.faults["GET /v2/account"].extend(["unavailable"] * 3)
    with pytest.raises(BrokerTimeout):
        connected(stub, retries=1).holdings()
    assert stub.requests == ["GET /v2/account"] * 2
    assert connected(stub, retries=1).holdings().cash == 100_000.0


def test_order_submitted_twice_is_placed_once(stub, broker):
    first = broker.submit(order())
    stub.open_exchange()
    again = connected(stub).submit(order())
    assert placed(stub) == ["SPY"]
    assert again.broker_order_id == first.broker_order_id
    assert again.status == "filled"


def test_an_order_that_was_cancelled_is_not_placed_again(stub, broker):
    broker.submit(order())
    broker.cancel(f"{PLAN}-SPY")
    assert broker.submit(order()).status == "cancelled"
    assert placed(stub) == ["SPY"]


@pytest.mark.parametrize(
    ("status", "sentence"), [(403, "insufficient buying power"), (422, 'asset "N5" is not active')]
)
def test_rejected_order_has_the_reason_and_others_are_placed(stub, broker, status, sentence):
    stub.refused["N5"] = status, sentence
    receipts = [broker.submit(order(f"N{number}")) for number in range(10)]
    (rejected,) = [each for each in receipts if each.status == "rejected"]
    assert (rejected.order_id, rejected.broker_order_id, rejected.reason) == (f"{PLAN}-N5", "", sentence)
    assert placed(stub) == [f"N{number}" for number in range(10) if number != 5]


def test_partial_fill_is_not_complete(stub, broker):
    stub.filled_share = 0.4
    broker.submit(order(quantity=10.0))
    stub.open_exchange()
    (part,) = broker.fills(PLAN)
    assert (part.quantity, part.price, part.complete, part.session) == (4.0, 100.0, False, date(2024, 3, 5))
    broker.cancel(f"{PLAN}-SPY")
    assert broker.open_orders() == []
    assert [each.quantity for each in broker.fills(PLAN)] == [4.0]


def test_fill_without_a_price_raises_broker_timeout(stub, broker):
    broker.submit(order())
    stub.open_exchange()
    stub.orders[0]["filled_avg_price"] = None
    with pytest.raises(BrokerTimeout):
        broker.fills(PLAN)
    stub.orders[0]["filled_avg_price"] = "101"
    assert [fill.price for fill in broker.fills(PLAN)] == [101.0]


def test_cash_activities_have_kinds_and_appear_once(stub, broker):
    stub.book("CSD", 999.0)  # on a day before
    stub.clock += timedelta(days=5)
    after = stub.clock.date()
    for kind, amount in (("CSD", 500.0), ("CSW", -200.0), ("JNLC", 70.0), ("FEE", -0.02), ("DIV", 3.5), ("INT", 0.4)):
        stub.book(kind, amount)
    stub.book("CSD", 40.0, status="canceled")
    stub.book("SPIN", 0.0, status=None)  # what is no cash
    stub.activities[-1]["net_amount"] = None
    told = broker.activities(after)
    assert [(each.kind, each.amount) for each in told] == [
        *(("flow", 500.0), ("flow", -200.0), ("flow", 70.0), ("fee", -0.02), ("income", 3.5), ("income", 0.4)),
        ("flow", 0.0),  # it was taken back
    ]
    assert len({each.activity_id for each in told}) == 7


def test_activities_include_later_pages(stub, broker):
    for number in range(205):
        stub.book("CSD", float(number))
    assert [each.amount for each in broker.activities(date(2024, 3, 1))] == [float(number) for number in range(205)]
    assert stub.requests.count("GET /v2/account/activities") == 3


def test_invalid_activity_raises(stub, broker):
    stub.book("CSD", 1.0)
    stub.activities[0]["net_amount"] = "much"
    with pytest.raises(ExecutionError):
        broker.activities(date(2024, 3, 1))


def test_cancelling_a_filled_or_unknown_order_does_nothing(stub, broker):
    stub.is_open = True
    broker.submit(order())
    broker.cancel(f"{PLAN}-SPY")
    broker.cancel(f"{PLAN}-TLT")
    assert [each["status"] for each in stub.orders] == ["filled"]
    assert not any(request.startswith("DELETE") for request in stub.requests)


def test_order_filled_during_cancellation_stays_filled(stub, broker, monkeypatch):
    broker.submit(order())
    looked_up = stub._by_client_id

    def filled_after(client_order_id):
        answer = 200, dict(looked_up(client_order_id)[1])
        stub.open_exchange()
        return answer

    monkeypatch.setattr(stub, "_by_client_id", filled_after)
    broker.cancel(f"{PLAN}-SPY")
    assert [each["status"] for each in stub.orders] == ["filled"]


def test_holdings_report_debt_and_short_positions(stub, broker):
    stub.cash, stub.positions = -1_250.5, {"SPY": 20.0, "TLT": -3.0}
    held = broker.holdings()
    assert held.cash == -1_250.5
    assert held.shares == {"SPY": 20.0, "TLT": -3.0}
    assert held.equity == pytest.approx(-1_250.5 + 17 * 100.0)


def test_to_spend_excludes_margin_and_open_orders(stub, broker):
    stub.multiplier = 2
    assert broker.holdings().to_spend == 100_000.0
    broker.submit(order(quantity=600.0))
    held = broker.holdings()
    assert (held.cash, held.to_spend) == (100_000.0, 40_000.0)


def test_fills_include_earlier_pages(stub, broker):
    stub.is_open = True
    broker.submit(order("SPY"))
    broker.submit(order("TLT"))
    for number in range(501):
        stub._place({**_body(f"later-{number}"), "symbol": "GLD"})
    assert sorted(each.symbol for each in broker.fills(PLAN)) == ["SPY", "TLT"]
    assert stub.requests.count("GET /v2/orders") == 2


@pytest.mark.slow
def test_open_orders_include_all_pages_and_foreign_orders(stub, broker):
    stub.cash = 1e6
    for number in range(1_002):
        stub._place(_body(f"by-hand-{number}"))
    found = [each.order_id for each in broker.open_orders()]
    assert sorted(found) == sorted(f"by-hand-{number}" for number in range(1_002))


def _body(client_order_id: str) -> dict:
    return {"symbol": "SPY", "qty": 1.0, "side": "buy", "type": "market", "time_in_force": "day",
            "client_order_id": client_order_id}  # fmt: skip


def test_rejected_keys_raise_with_their_variables(stub):
    broker = connected(stub, keys=("PK-another", "another-secret"))
    for ask in (broker.holdings, lambda: broker.submit(order()), broker.open_orders, lambda: broker.cancel("x")):
        with pytest.raises(ExecutionError, match="APCA_API_KEY_ID"):
            ask()
    assert stub.orders == []


def test_invalid_answer_raises(stub, broker, monkeypatch):
    monkeypatch.setattr(stub, "_account", lambda: (200, {"hello": "world"}))
    with pytest.raises(ExecutionError):
        broker.holdings()


@pytest.mark.parametrize(
    ("fault", "said"),
    [("moved", "HTTP 302"), ("empty", "HTTP 204")],
)
def test_redirect_or_empty_answer_raises(stub, broker, fault: Fault, said):
    for asked, ask in {
        "GET /v2/account": broker.holdings,
        "GET /v2/positions": broker.holdings,
        "GET /v2/orders": broker.open_orders,
        PLACE: lambda: broker.submit(order()),
    }.items():
        stub.faults[asked].append(fault)
        with pytest.raises(ExecutionError, match=said):
            ask()


def test_redirected_cancellation_raises(stub, broker):
    receipt = broker.submit(order())
    stub.faults[f"DELETE /v2/orders/{receipt.broker_order_id}"].append("moved")
    with pytest.raises(ExecutionError):
        broker.cancel(f"{PLAN}-SPY")
    assert stub.orders[0]["status"] == "accepted"


def test_only_writes_mention_an_uncertain_order(stub):
    broker = connected(stub, retries=0)
    broker.submit(order())
    for asked, ask in {
        "GET /v2/account": broker.holdings,
        "GET /v2/positions": broker.holdings,
        "GET /v2/orders": broker.open_orders,
    }.items():
        stub.faults[asked].append("unavailable")
        with pytest.raises(BrokerTimeout) as told:
            ask()
        assert "order" not in str(told.value)
    stub.faults[PLACE].append("unavailable")
    with pytest.raises(BrokerTimeout, match="order"):
        broker.submit(order("TLT"))
    stub.faults[f"DELETE /v2/orders/{stub.orders[0]['id']}"].append("unavailable")
    with pytest.raises(BrokerTimeout, match="cancelled"):
        broker.cancel(f"{PLAN}-SPY")


def test_account_answer_without_cash_raises(stub, broker, monkeypatch):
    told = stub._account()[1]
    monkeypatch.setattr(stub, "_account", lambda: (200, {**told, "cash": None}))
    with pytest.raises(ExecutionError):
        broker.holdings()


def test_no_text_of_a_broker_contains_keys(stub, caplog):
    caplog.set_level(logging.DEBUG)
    caplog.set_level(logging.DEBUG, "urllib3")  # notifications raise its level
    texts = [repr(connected(stub)), str(connected(stub).client)]
    stub.faults[PLACE].append("silent")
    for keys in (KEYS, ("PK-of-the-stub", "wrong-secret")):
        broker = connected(stub, keys=keys, timeout_s=0.1, retries=0)
        with pytest.raises((ExecutionError, BrokerTimeout)) as told:
            broker.submit(order())
        texts += [repr(told.value), "".join(traceback.format_exception(told.value))]
    assert caplog.records
    assert not [text for text in (*texts, caplog.text) for key in (*KEYS, "wrong-secret") if key in text]
