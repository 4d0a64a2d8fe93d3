"""Account at Alpaca, by alpaca-py: an optional extra, so import this module only to open such an account."""

import json
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta
from decimal import ROUND_DOWN, Decimal
from itertools import count
from typing import Any, Self, TypeVar

from pydantic import BaseModel, FiniteFloat, SecretStr, TypeAdapter, ValidationError
from requests import PreparedRequest, Response
from requests.adapters import HTTPAdapter
from requests.exceptions import RequestException
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_exponential
from tenacity.wait import wait_base

from nvtrader_pipelines.execution.brokers.account_spec import KEY_ID, SECRET_KEY, AlpacaAccountSpec
from nvtrader_pipelines.execution.brokers.broker import (
    BrokerHoldings,
    BrokerTimeout,
    CashActivity,
    CashKind,
    Receipt,
    Status,
)
from nvtrader_pipelines.execution.errors import ExecutionError
from nvtrader_pipelines.execution.orders import Fill, Order, plan_id_of
from nvtrader_pipelines.market.calendar import NEW_YORK

with warnings.catch_warnings():  # alpaca-py 0.44 also imports its streams, which are not used here
    warnings.filterwarnings("ignore", message="websockets.legacy is deprecated", category=DeprecationWarning)
    from alpaca.common.constants import DEFAULT_RETRY_EXCEPTION_CODES
    from alpaca.common.enums import Sort
    from alpaca.common.exceptions import APIError
    from alpaca.trading.client import TradingClient
    from alpaca.trading.enums import OrderSide, OrderStatus, QueryOrderStatus, TimeInForce
    from alpaca.trading.models import Order as AlpacaOrder
    from alpaca.trading.models import Position, TradeAccount
    from alpaca.trading.requests import GetOrdersRequest, MarketOrderRequest

Answer = TypeVar("Answer")

UNAUTHORIZED, NOT_FOUND, TOO_MANY_REQUESTS, SERVER_ERROR = 401, 404, 429, 500
NO_CONTENT, MOVED, BAD_REQUEST = 204, 300, 400
REFUSED = {403, 422}  # insufficient funds or permissions; invalid request
MIN_QUANTITY = Decimal("1e-9")  # shares
ORDERS_PER_PAGE = 500  # Alpaca's maximum
STATUS: dict[OrderStatus, Status] = {  # any other status is of an open order
    OrderStatus.FILLED: "filled",
    OrderStatus.REJECTED: "rejected",
    OrderStatus.CANCELED: "cancelled",
    OrderStatus.EXPIRED: "cancelled",
    OrderStatus.REPLACED: "cancelled",
    OrderStatus.DONE_FOR_DAY: "cancelled",  # orders here are good for one day
}
ACTIVITIES_PER_PAGE = 100  # Alpaca's maximum
KINDS: dict[str, CashKind] = {  # Alpaca's activities that move cash without an order
    **dict.fromkeys(("CSD", "CSW", "JNLC", "ACATC"), "flow"),
    **dict.fromkeys(("FEE", "CFEE", "PTC", "DIVFEE"), "fee"),
    **dict.fromkeys(("DIV", "DIVCGL", "DIVCGS", "DIVFT", "DIVNRA", "DIVROC", "DIVTW", "DIVTXEX", "DIVWH"), "income"),
    **dict.fromkeys(("INT", "INTNRA", "INTTW"), "income"),
}
BACKOFF = wait_exponential(multiplier=0.5, max=8.0)  # seconds between two attempts


class _Refusal(Exception):  # noqa: N818 - internal: the calling method translates it
    """Error that Alpaca answered with."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class _Activity(BaseModel):
    """Activity other than a trade; the model of alpaca-py is for its broker API and needs an account."""

    id: str
    activity_type: str
    net_amount: FiniteFloat | None = None  # None without cash, as of a spin-off
    status: str = "executed"

    def to_cash_activity(self, kind: CashKind) -> CashActivity:
        """Convert to a cash activity; a canceled one has amount 0."""
        return CashActivity(self.id, kind, 0.0 if self.status == "canceled" else self.net_amount or 0.0)


_Activities = TypeAdapter(list[_Activity])


class _Transport(HTTPAdapter):
    """Sends each request once, with a limit of time: the broker decides on asking again, not alpaca-py."""

    def __init__(self, timeout: float) -> None:
        super().__init__()
        self._timeout = timeout

    def send(self, request: PreparedRequest, *args: Any, **options: Any) -> Response:
        """Send one request.

        Raises:
            _Refusal: if it is redirected, as it would go with the keys, or nothing but a deletion has no content.
            BrokerTimeout: if alpaca-py would ask again.
        """
        answer = super().send(request, *args, **{**options, "timeout": self._timeout})
        if MOVED <= answer.status_code < BAD_REQUEST:
            answer.close()
            raise _Refusal(answer.status_code, f"it sends on to {answer.headers.get('Location', 'nowhere')}")
        if answer.status_code in DEFAULT_RETRY_EXCEPTION_CODES:
            raise _no_answer(f"HTTP {answer.status_code}")
        if answer.ok and not answer.content and request.method != "DELETE":
            raise _Refusal(NO_CONTENT, "it answered nothing")
        return answer


def _client(spec: AlpacaAccountSpec, key_id: SecretStr, secret_key: SecretStr) -> TradingClient:
    keys = key_id.get_secret_value(), secret_key.get_secret_value()
    client = TradingClient(*keys, paper=spec.paper, url_override=spec.base_url)
    for scheme in ("https://", "http://"):
        client._session.mount(scheme, _Transport(spec.timeout_s))  # noqa: SLF001 - alpaca-py has no other way to limit time
    return client


@dataclass(frozen=True)
class AlpacaBroker:
    """Account at Alpaca, with market orders for the day; while the exchange is closed they wait for its open."""

    client: TradingClient = field(repr=False)
    attempts: int  # per request
    backoff: wait_base = field(default=BACKOFF, repr=False)

    @classmethod
    def connect(cls, spec: AlpacaAccountSpec, key_id: SecretStr, secret_key: SecretStr) -> Self:
        """Make the client of an account, without a request."""
        return cls(_client(spec, key_id, secret_key), spec.retries + 1)

    def holdings(self) -> BrokerHoldings:
        """Return the current holdings; debt is negative cash, and short positions are negative shares.

        Raises:
            BrokerTimeout: if there is no answer.
            ExecutionError: if Alpaca rejects the request, or its answer lacks cash or equity.
        """
        return _holdings(self._read(self.client.get_account), self._read(self.client.get_all_positions))

    def submit(self, order: Order) -> Receipt:
        """Place a market order for the day, with at most nine decimals of a share, once per id.

        The id is Alpaca's `client_order_id`.

        Raises:
            BrokerTimeout: if there is no answer; the order may exist or not.
            ExecutionError: if Alpaca rejects the keys.
        """
        quantity = Decimal(repr(order.quantity)).quantize(MIN_QUANTITY, ROUND_DOWN)
        if not quantity:
            return Receipt(order.order_id, "", "rejected", f"{order.quantity} shares are below Alpaca's minimum")
        try:
            return _receipt(self._place_once(_market_order(order, float(quantity)), order.order_id))
        except BrokerTimeout as error:
            raise BrokerTimeout(f"{error}; the order may exist or not, so submit it with the same id") from None
        except _Refusal as refusal:
            if refusal.status not in REFUSED:
                raise _to_execution_error(refusal) from None
            known = self._find(order.order_id)  # a duplicate id is rejected too
            return _receipt(known) if known else Receipt(order.order_id, "", "rejected", str(refusal))

    def _place_once(self, request: MarketOrderRequest, order_id: str) -> AlpacaOrder:
        """Submit an order; before a retry, look it up by its id."""
        n_attempts = count()

        def attempt() -> AlpacaOrder:
            known = self._look_up(order_id) if next(n_attempts) else None
            return known or _request(lambda: self.client.submit_order(request))

        return self._retry(attempt)

    def open_orders(self) -> Sequence[Receipt]:
        """Return the account's open orders, including those placed elsewhere."""
        return [_receipt(order) for page in self._pages(QueryOrderStatus.OPEN) for order in page]

    def cancel(self, order_id: str) -> None:
        """Cancel an order if it is open.

        Raises:
            BrokerTimeout: if there is no answer; the order may be cancelled or not.
            ExecutionError: if Alpaca rejects the request.
        """
        order = self._find(order_id)
        if order is None or _status(order) != "accepted":
            return
        try:
            self._retry(lambda: _request(lambda: self.client.cancel_order_by_id(order.id)))
        except BrokerTimeout as error:
            raise BrokerTimeout(f"{error}; the order may be cancelled or not, so cancel it again") from None
        except _Refusal as refusal:
            if refusal.status not in {NOT_FOUND, *REFUSED}:  # those mean that it was filled or cancelled meanwhile
                raise _to_execution_error(refusal) from None

    def fills(self, plan_id: str) -> Sequence[Fill]:
        """Return the fills of a plan's orders, without the fees that Alpaca books on the next day."""
        own: list[AlpacaOrder] = []
        for page in self._pages(QueryOrderStatus.ALL):
            found = [order for order in page if plan_id_of(order.client_order_id) == plan_id]
            if own and not found:  # a plan's orders are adjacent
                break
            own.extend(found)
        return [fill for order in own if (fill := _fill(order))]

    def activities(self, after: date) -> Sequence[CashActivity]:
        """Return deposits, withdrawals, cash journals, fees, dividends and interest booked after a day.

        Activities of other types are ignored: cash that they move counts as a return.
        """
        activities: list[CashActivity] = []
        query = {
            "category": "non_trade_activity",
            "after": after.isoformat(),
            "direction": "asc",
            "page_size": ACTIVITIES_PER_PAGE,
        }
        while True:
            page = self._read(lambda: _Activities.validate_python(self.client.get("/account/activities", query)))
            activities += [row.to_cash_activity(KINDS[row.activity_type]) for row in page if row.activity_type in KINDS]
            if len(page) < ACTIVITIES_PER_PAGE:
                return activities
            query["page_token"] = page[-1].id

    def _pages(self, status: QueryOrderStatus) -> Iterator[list[AlpacaOrder]]:
        """Yield pages of orders, latest first."""
        seen: set[Any] = set()
        until = None
        while True:
            request = GetOrdersRequest(status=status, limit=ORDERS_PER_PAGE, until=until, direction=Sort.DESC)
            page = self._read(lambda query=request: self.client.get_orders(query))
            new = [order for order in page if order.id not in seen]
            yield new
            if len(page) < ORDERS_PER_PAGE or not new:
                return
            seen.update(order.id for order in new)
            until = page[-1].submitted_at + timedelta(microseconds=1)  # Alpaca's times have nanoseconds

    def _find(self, order_id: str) -> AlpacaOrder | None:
        """Look up an order by its id, with retries; None if there is none."""
        return self._translate_errors(lambda: self._look_up(order_id))

    def _look_up(self, order_id: str) -> AlpacaOrder | None:
        try:
            return _request(lambda: self.client.get_order_by_client_id(order_id))
        except _Refusal as refusal:
            if refusal.status != NOT_FOUND:
                raise
            return None

    def _read(self, request: Callable[[], Any]) -> Any:
        return self._translate_errors(lambda: _request(request))

    def _translate_errors(self, attempt: Callable[[], Answer]) -> Answer:
        """Make an attempt with retries, and turn a rejection into an `ExecutionError`."""
        try:
            return self._retry(attempt)
        except _Refusal as refusal:
            raise _to_execution_error(refusal) from None

    def _retry(self, attempt: Callable[[], Answer]) -> Answer:
        """Repeat an attempt while Alpaca does not answer."""
        on_timeout = retry_if_exception_type(BrokerTimeout)
        retry = Retrying(stop=stop_after_attempt(self.attempts), wait=self.backoff, retry=on_timeout, reraise=True)
        return retry(attempt)


def _request(request: Callable[[], Any]) -> Any:
    """Make one request; errors of alpaca-py hold headers with the keys, so they are not chained."""
    try:
        return request()
    except APIError as error:
        status = error.status_code or SERVER_ERROR
        if status >= SERVER_ERROR or status == TOO_MANY_REQUESTS:
            raise _no_answer(f"HTTP {status}") from None
        raise _Refusal(status, _message(str(error))) from None
    except RequestException as error:
        raise _no_answer(type(error).__name__) from None
    except ValidationError as error:
        raise ExecutionError(
            f"Alpaca's answer must be valid for alpaca-py, but is not a valid {error.title}; update alpaca-py"
        ) from None


def _no_answer(why: str) -> BrokerTimeout:
    return BrokerTimeout(f"Alpaca did not answer ({why}); try again later")


def _message(body: str) -> str:
    """Message in the body of an error answer."""
    try:
        return str(json.loads(body)["message"])
    except (ValueError, KeyError, TypeError):  # another server's answer, such as a proxy's page
        return body[:200]


def _to_execution_error(refusal: _Refusal) -> ExecutionError:
    """Translate Alpaca's error for people."""
    if refusal.status in {UNAUTHORIZED, *REFUSED}:
        return ExecutionError(
            f"Alpaca must accept the account's keys, but rejects them (HTTP {refusal.status}: {refusal}); set {KEY_ID} "
            f"and {SECRET_KEY} to a pair of the account, of paper trading if it has paper: true"
        )
    return ExecutionError(
        f"Alpaca must accept requests, but rejects one (HTTP {refusal.status}: {refusal}); check the account's base_url"
    )


def _holdings(account: TradeAccount, positions: Sequence[Position]) -> BrokerHoldings:
    if account.cash is None or account.equity is None:
        raise ExecutionError(
            f"Alpaca must report the account's cash and equity, but reports {account.cash} and {account.equity}; "
            "check the account in Alpaca's dashboard"
        )
    shares = {position.symbol: float(position.qty) for position in positions}
    powers = (account.cash, account.buying_power, account.non_marginable_buying_power)
    to_spend = min(float(power) for power in powers if power is not None)
    return BrokerHoldings(shares, float(account.cash), float(account.equity), to_spend)


def _market_order(order: Order, quantity: float) -> MarketOrderRequest:
    return MarketOrderRequest(
        symbol=order.symbol,
        qty=quantity,
        side=OrderSide(order.side),
        time_in_force=TimeInForce.DAY,
        client_order_id=order.order_id,
    )


def _status(order: AlpacaOrder) -> Status:
    return STATUS.get(order.status, "accepted")


def _receipt(order: AlpacaOrder) -> Receipt:
    status = _status(order)
    reason = "Alpaca accepted the order and rejected it later" if status == "rejected" else ""
    return Receipt(order.client_order_id, str(order.id), status, reason)


def _fill(order: AlpacaOrder) -> Fill | None:
    quantity, price = float(order.filled_qty or 0.0), float(order.filled_avg_price or 0.0)
    if not quantity:
        return None
    if not price:  # Alpaca is still processing the order
        raise BrokerTimeout(f"Alpaca has no price yet for the fill of order {order.client_order_id}; try again later")
    return Fill(
        order_id=order.client_order_id,
        symbol=str(order.symbol),
        side="buy" if order.side is OrderSide.BUY else "sell",
        quantity=quantity,
        price=price,
        cost=0.0,
        session=(order.filled_at or order.updated_at).astimezone(NEW_YORK.time_zone).date(),
        complete=order.status is OrderStatus.FILLED,
    )
