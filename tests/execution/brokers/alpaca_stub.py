"""A server on this machine that speaks the routes of Alpaca's trading API, and can fail as a broker does.

Shapes of answers: https://docs.alpaca.markets/reference (account, positions, orders, activities); numbers are text.
"""

import json
import re
from collections import defaultdict, deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Lock, Thread
from typing import Any, Literal
from urllib.parse import parse_qs, urlsplit
from uuid import NAMESPACE_URL, UUID, uuid5

KEYS = "PK-of-the-stub", "correct-horse-battery-staple"
CLOSED = {"filled", "canceled", "expired", "rejected", "done_for_day"}
Fault = Literal[
    "lost", "silent", "dropped", "unavailable", "moved", "empty"
]  # silent, dropped, empty: after it is done; the rest: the server does nothing
Answer = tuple[int, Any]
MOVED = 302
FAILURES: dict[Fault | None, Answer] = {
    "unavailable": (503, {"message": "service unavailable"}),
    "moved": (MOVED, None),
    "empty": (200, None),
}


@dataclass
class AlpacaStub:
    """One account, its orders, and what shall go wrong."""

    cash: float = 100_000.0
    positions: dict[str, float] = field(default_factory=dict)  # shares
    multiplier: int = 1  # of cash that may be spent; above 1 the account borrows
    prices: dict[str, float] = field(default_factory=lambda: defaultdict(lambda: 100.0))
    orders: list[dict[str, Any]] = field(default_factory=list)
    activities: list[dict[str, Any]] = field(default_factory=list)  # those that are no trade, as they were booked
    refused: dict[str, tuple[int, str]] = field(default_factory=dict)  # by symbol: HTTP status and sentence
    faults: dict[str, deque[Fault]] = field(default_factory=lambda: defaultdict(deque))  # by method and path
    is_open: bool = False  # whether the exchange is: orders are filled when they come
    filled_share: float = 1.0  # of each order
    clock: datetime = datetime(2024, 3, 4, 22, 0, tzinfo=UTC)
    requests: list[str] = field(default_factory=list)  # method and path of each, as they came
    released: Event = field(default_factory=Event)
    url: str = ""

    def answer(self, method: str, path: str, query: dict[str, str], body: dict[str, Any]) -> Answer:
        """What Alpaca would answer."""
        if method == "POST" and path == "/v2/orders":
            return self._place(body)
        if method == "DELETE" and (found := re.fullmatch(r"/v2/orders/([0-9a-f-]{36})", path)):
            return self._cancel(found[1])
        routes = {
            "/v2/account": self._account,
            "/v2/positions": self._positions,
            "/v2/orders": lambda: self._listed(query),
            "/v2/orders:by_client_order_id": lambda: self._by_client_id(query["client_order_id"]),
            "/v2/account/activities": lambda: self._booked(query),
        }
        if method == "GET" and path in routes:
            return routes[path]()
        return 404, {"code": 40410000, "message": "endpoint not found"}

    def open_exchange(self, but: str | None = None) -> None:
        """Fill what waits, each order by the share that is asked for, but of one name."""
        self.is_open = True
        self.clock += timedelta(hours=16, minutes=30)  # the next morning in New York
        for order in self.orders:
            if order["status"] not in CLOSED and order["symbol"] != but:
                self._fill(order)

    def book(self, kind: str, amount: float, status: str | None = "executed") -> None:
        """Move cash by no order: deposit (CSD), withdraw (CSW), journal (JNLC), charge (FEE), pay dividends (DIV)."""
        self.cash += amount
        name = f"{kind}-{len(self.activities)}"
        told = {"activity_type": kind, "date": self.clock.date().isoformat(), "net_amount": str(amount)}
        booked = {"id": f"{self.clock:%Y%m%d}000000000::{_uuid(name)}", "created_at": self.clock.isoformat(), **told}
        self.activities.append(booked | ({"status": status} if status else {}))

    def _booked(self, query: dict[str, str]) -> Answer:
        """A page of activities, as they were booked; with a token, of those after the one it names."""
        if query.get("category") != "non_trade_activity" or query["direction"] != "asc":
            return 422, {"code": 40010001, "message": "the stub lists activities that are no trade, the oldest first"}
        found = [each for each in self.activities if each["created_at"] > query["after"]]
        if token := query.get("page_token"):
            found = found[[each["id"] for each in found].index(token) + 1 :]
        return 200, [
            {key: value for key, value in each.items() if key != "created_at"}
            for each in found[: int(query["page_size"])]
        ]

    def _account(self) -> Answer:
        equity = self.cash + sum(self.prices[name] * shares for name, shares in self.positions.items())
        return 200, {
            "id": str(_uuid("account")),
            "account_number": "PA3STUB",
            "status": "ACTIVE",
            "currency": "USD",
            "cash": str(self.cash),
            "portfolio_value": str(equity),
            "equity": str(equity),
            "last_equity": str(equity),
            "buying_power": str(self._buying_power() * self.multiplier),
            "non_marginable_buying_power": str(self._buying_power()),
            "multiplier": str(self.multiplier),
            "trading_blocked": False,
            "account_blocked": False,
            "shorting_enabled": False,
            "created_at": "2024-01-02T14:30:00Z",
        }

    def _buying_power(self) -> float:
        """Cash that no open order to buy needs; sells that wait add nothing to it."""
        needed = sum(
            float(order["qty"]) * self.prices[order["symbol"]]
            for order in self.orders
            if order["side"] == "buy" and order["status"] not in CLOSED
        )
        return max(self.cash - needed, 0.0)

    def _positions(self) -> Answer:
        return 200, [
            {
                "asset_id": str(_uuid(name)),
                "symbol": name,
                "exchange": "NYSE",
                "asset_class": "us_equity",
                "avg_entry_price": "100",
                "qty": str(shares),
                "qty_available": str(shares),
                "side": "long" if shares > 0 else "short",
                "market_value": str(shares * self.prices[name]),
                "cost_basis": str(shares * 100),
            }
            for name, shares in self.positions.items()
        ]

    def _listed(self, query: dict[str, str]) -> Answer:
        wanted = query.get("status", "open")
        found = [
            order for order in self.orders if wanted == "all" or (order["status"] in CLOSED) == (wanted == "closed")
        ]
        if "until" in query:
            until = datetime.fromisoformat(query["until"])
            found = [order for order in found if datetime.fromisoformat(order["submitted_at"]) < until]
        ordered = sorted(
            found, key=lambda order: order["submitted_at"], reverse=query.get("direction", "desc") == "desc"
        )
        return 200, ordered[: min(int(query.get("limit", 50)), 500)]

    def _by_client_id(self, client_order_id: str) -> Answer:
        for order in self.orders:
            if order["client_order_id"] == client_order_id:
                return 200, order
        return 404, {"code": 40410000, "message": f"order not found for {client_order_id}"}

    def _place(self, body: dict[str, Any]) -> Answer:
        if self._by_client_id(body["client_order_id"])[0] == 200:
            return 422, {"code": 40010001, "message": "client_order_id must be unique"}
        if body["symbol"] in self.refused:
            status, message = self.refused[body["symbol"]]
            return status, {"code": status * 100_000, "message": message}
        if len(repr(body["qty"]).partition(".")[2]) > 9:
            return 422, {"code": 42210000, "message": "qty must be limited to 9 decimal places"}
        if body["side"] == "sell" and body["qty"] > self.positions.get(body["symbol"], 0.0):
            return 403, {"code": 40310000, "message": "insufficient qty available for order"}
        if body["side"] == "buy" and body["qty"] * self.prices[body["symbol"]] > self._buying_power() * self.multiplier:
            return 403, {"code": 40310000, "message": "insufficient buying power"}
        self.clock += timedelta(microseconds=1)
        order = self._order(body)
        self.orders.append(order)
        if self.is_open:
            self._fill(order)
        return 200, order

    def _order(self, body: dict[str, Any]) -> dict[str, Any]:
        at = self.clock.isoformat()
        moments = ("filled_at", "expired_at", "canceled_at", "failed_at", "replaced_at", "replaced_by", "replaces")
        return {
            "id": str(_uuid(body["client_order_id"])),
            "client_order_id": body["client_order_id"],
            **dict.fromkeys(("created_at", "updated_at", "submitted_at"), at),
            **dict.fromkeys(moments),
            "asset_id": str(_uuid(body["symbol"])),
            "symbol": body["symbol"],
            "asset_class": "us_equity",
            "notional": None,
            "qty": str(body["qty"]),
            "filled_qty": "0",
            "filled_avg_price": None,
            "order_class": "",
            "order_type": body["type"],
            "type": body["type"],
            "side": body["side"],
            "time_in_force": body["time_in_force"],
            "limit_price": None,
            "stop_price": None,
            "status": "accepted",
            "extended_hours": False,
            "legs": None,
        }

    def _fill(self, order: dict[str, Any]) -> None:
        name, price = order["symbol"], self.prices[order["symbol"]]
        quantity = float(order["qty"]) * self.filled_share
        signed = quantity if order["side"] == "buy" else -quantity
        self.positions[name] = self.positions.get(name, 0.0) + signed
        if not self.positions[name]:
            del self.positions[name]
        self.cash -= signed * price
        whole = self.filled_share == 1.0
        at = self.clock.isoformat()
        order |= {"status": "filled" if whole else "partially_filled", "filled_qty": str(quantity), "updated_at": at}
        order |= {"filled_avg_price": str(price), "filled_at": at if whole else None}

    def _cancel(self, order_id: str) -> Answer:
        order = next((order for order in self.orders if order["id"] == order_id), None)
        if order is None:
            return 404, {"code": 40410000, "message": f"order not found for {order_id}"}
        if order["status"] in CLOSED:
            return 422, {"code": 42210000, "message": f'order is already in "{order["status"]}" state'}
        order |= {"status": "canceled", "canceled_at": self.clock.isoformat()}
        return 204, None


@contextmanager
def serving(stub: AlpacaStub) -> Iterator[AlpacaStub]:
    """The stub at an address of this machine."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _handler(stub)) as server:
        stub.url = f"http://127.0.0.1:{server.server_port}"
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield stub
        finally:
            stub.released.set()
            server.shutdown()
            thread.join()


def _handler(stub: AlpacaStub) -> type[BaseHTTPRequestHandler]:
    one_at_a_time = Lock()

    class Handler(BaseHTTPRequestHandler):
        def handle_any(self) -> None:
            url = urlsplit(self.path)
            query = {name: values[-1] for name, values in parse_qs(url.query).items()}
            body = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or "{}")
            with one_at_a_time:
                stub.requests.append(f"{self.command} {url.path}")
                waiting = stub.faults[stub.requests[-1]]
                fault = waiting.popleft() if waiting else None
                known = (self.headers["APCA-API-KEY-ID"], self.headers["APCA-API-SECRET-KEY"]) == KEYS
                status, content = 401, {"code": 40110000, "message": "request is not authorized"}
                if known and fault not in {"lost", "unavailable", "moved"}:
                    status, content = stub.answer(self.command, url.path, query, body)
            if fault in {"lost", "silent"}:
                stub.released.wait(30)
            elif fault in (answers := {**FAILURES, None: (status, content)}):
                self._send(*answers[fault])

        def _send(self, status: int, content: Any) -> None:
            text = b"" if content is None else json.dumps(content).encode()
            self.send_response(status)
            if status == MOVED:
                self.send_header("Location", "https://elsewhere.example/")
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        do_GET = do_POST = do_DELETE = handle_any  # noqa: N815 - http.server's names

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - http.server's name
            """Nothing is said."""

    return Handler


def _uuid(name: str) -> UUID:
    return uuid5(NAMESPACE_URL, name)
