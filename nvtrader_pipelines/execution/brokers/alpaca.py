"""An account at Alpaca, by alpaca-py: an optional extra, so this module is imported by who opens such an account."""

import json
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta
from decimal import ROUND_DOWN, Decimal
from itertools import count
from typing import Any, ClassVar, Literal, Self, TypeVar

from pydantic import BaseModel, FiniteFloat, SecretStr, TypeAdapter, ValidationError
from requests import PreparedRequest, Response
from requests.adapters import HTTPAdapter
from requests.exceptions import RequestException
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_exponential
from tenacity.wait import wait_base

from nvtrader_pipelines.execution.brokers.account_spec import KEY_ID, SECRET_KEY, AlpacaAccountSpec
from nvtrader_pipelines.execution.brokers.broker import (
    BrokerTimeout,
    CashActivity,
    CashKind,
    Holdings,
    Receipt,
    Status,
)
from nvtrader_pipelines.execution.errors import ExecutionError
from nvtrader_pipelines.execution.orders import Fill, Order
from nvtrader_pipelines.market.calendar import EXCHANGE_TIME

with warnings.catch_warnings():  # alpaca-py 0.44 imports its streams, which nothing here needs, with it
    warnings.filterwarnings("ignore", message="websockets.legacy is deprecated", category=DeprecationWarning)
    from alpaca.common.constants import DEFAULT_RETRY_EXCEPTION_CODES
    from alpaca.common.enums import Sort
    from alpaca.common.exceptions import APIError
    from alpaca.trading.client import TradingClient
    from alpaca.trading.enums import OrderSide, OrderStatus, QueryOrderStatus, TimeInForce
    from alpaca.trading.models import Order as AlpacaOrder
    from alpaca.trading.requests import GetOrdersRequest, MarketOrderRequest

Answer = TypeVar("Answer")

UNAUTHORIZED, NOT_FOUND, TOO_MANY_REQUESTS, SERVER_ERROR = 401, 404, 429, 500
NO_CONTENT, MOVED, BAD_REQUEST = 204, 300, 400
REFUSED = {403, 422}  # what funds or permissions do not allow; what is not valid
SMALLEST = Decimal("1e-9")  # shares
PAGE = 500  # orders, the most that Alpaca lists at once
STATUS: dict[OrderStatus, Status] = {  # any other is of an order that may still be filled
    OrderStatus.FILLED: "filled",
    OrderStatus.REJECTED: "rejected",
    OrderStatus.CANCELED: "cancelled",
    OrderStatus.EXPIRED: "cancelled",
    OrderStatus.REPLACED: "cancelled",
    OrderStatus.DONE_FOR_DAY: "cancelled",  # orders here are good for one day
}
BOOKED = 100  # activities, the most that Alpaca lists at once
KINDS: dict[str, CashKind] = {  # of Alpaca's activities, those that move cash and are no order's
    **dict.fromkeys(("CSD", "CSW", "JNLC", "ACATC"), "flow"),
    **dict.fromkeys(("FEE", "CFEE", "PTC", "DIVFEE"), "fee"),
    **dict.fromkeys(("DIV", "DIVCGL", "DIVCGS", "DIVFT", "DIVNRA", "DIVROC", "DIVTW", "DIVTXEX", "DIVWH"), "income"),
    **dict.fromkeys(("INT", "INTNRA", "INTTW"), "income"),
}
BACKOFF = wait_exponential(multiplier=0.5, max=8.0)  # seconds between two attempts


class _Refusal(Exception):  # noqa: N818 - what Alpaca said, on its way to the method that knows what it means
    """Alpaca answered with an error."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


class _Activity(BaseModel):
    """An activity that is no trade; alpaca-py has none for trading, its own is a broker's and wants an account."""

    id: str
    activity_type: str
    net_amount: FiniteFloat | None = None  # of what is no cash, such as a spin-off
    status: str = "executed"

    def told(self, kind: CashKind) -> CashActivity:
        """What the loop knows of it."""
        return CashActivity(self.id, kind, 0.0 if self.status == "canceled" else self.net_amount or 0.0)


_Booked = TypeAdapter(list[_Activity])


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
    """Market orders for the day; those placed while the exchange is closed wait for its next open."""

    client: TradingClient = field(repr=False)
    attempts: int  # of a request, the first included
    backoff: wait_base = field(default=BACKOFF, repr=False)
    settles: ClassVar[Literal["at_market"]] = "at_market"

    @classmethod
    def connect(cls, spec: AlpacaAccountSpec, key_id: SecretStr, secret_key: SecretStr) -> Self:
        """The account of two keys; nothing is asked of it yet."""
        return cls(_client(spec, key_id, secret_key), spec.retries + 1)

    def holdings(self) -> Holdings:
        """What is held now as Alpaca says it: a debt is negative cash, what is sold short negative shares.

        Raises:
            BrokerTimeout: if there is no answer.
            ExecutionError: if Alpaca refuses, or says no cash or equity.
        """
        account = self._read(self.client.get_account)
        positions = self._read(self.client.get_all_positions)
        if account.cash is None or account.equity is None:
            raise ExecutionError(
                f"Alpaca must say the account's cash and equity, but said {account.cash} and {account.equity}; see "
                "the state of the account in Alpaca's dashboard"
            )
        shares = {position.symbol: float(position.qty) for position in positions}
        powers = (account.cash, account.buying_power, account.non_marginable_buying_power)
        to_spend = min(float(each) for each in powers if each is not None)
        return Holdings(shares, float(account.cash), float(account.equity), to_spend)

    def submit(self, order: Order) -> Receipt:
        """Place an order for the day at the market's price, with at most nine decimals of a share.

        Its id is Alpaca's `client_order_id`, so it is placed once, however often it is submitted.

        Raises:
            BrokerTimeout: if there is no answer; the order may be there or not.
            ExecutionError: if Alpaca refuses the keys.
        """
        quantity = Decimal(repr(order.quantity)).quantize(SMALLEST, ROUND_DOWN)
        if not quantity:
            return Receipt(order.order_id, "", "rejected", f"{order.quantity} shares are less than Alpaca trades")
        request = MarketOrderRequest(
            symbol=order.symbol,
            qty=float(quantity),
            side=OrderSide(order.side),
            time_in_force=TimeInForce.DAY,
            client_order_id=order.order_id,
        )
        try:
            return _receipt(self._placed_once(request, order.order_id))
        except BrokerTimeout as error:
            raise BrokerTimeout(f"{error}; the order may be there or not, so submit it under the same id") from None
        except _Refusal as refusal:
            if refusal.status not in REFUSED:
                raise _failure(refusal) from None
            known = self._find(order.order_id)  # refused because it is there already
            return _receipt(known) if known else Receipt(order.order_id, "", "rejected", str(refusal))

    def _placed_once(self, request: MarketOrderRequest, order_id: str) -> AlpacaOrder:
        earlier = count()

        def attempt() -> AlpacaOrder:
            known = self._asked_for(order_id) if next(earlier) else None
            return known or _ask(lambda: self.client.submit_order(request))

        return self._retrying(attempt)

    def open_orders(self) -> Sequence[Receipt]:
        """Orders of the account, whoever placed them, that are accepted and neither filled nor cancelled."""
        return [_receipt(order) for page in self._pages(QueryOrderStatus.OPEN) for order in page]

    def cancel(self, order_id: str) -> None:
        """Cancel an open order; one that is not open any more is left.

        Raises:
            BrokerTimeout: if there is no answer; the order may be cancelled or not.
            ExecutionError: if Alpaca refuses.
        """
        order = self._find(order_id)
        if order is None or _status(order) != "accepted":
            return
        try:
            self._retrying(lambda: _ask(lambda: self.client.cancel_order_by_id(order.id)))
        except BrokerTimeout as error:
            raise BrokerTimeout(f"{error}; the order may be cancelled or not, so cancel it again") from None
        except _Refusal as refusal:
            if refusal.status not in {NOT_FOUND, *REFUSED}:  # those are of one filled or cancelled meanwhile
                raise _failure(refusal) from None

    def fills(self, plan_id: str) -> Sequence[Fill]:
        """What was filled of a plan's orders; fees that Alpaca books on the day after are not in their cost."""
        own: list[AlpacaOrder] = []
        for page in self._pages(QueryOrderStatus.ALL):
            found = [order for order in page if order.client_order_id.startswith(f"{plan_id}-")]
            if own and not found:  # a plan's orders lie together
                break
            own.extend(found)
        return [fill for order in own if (fill := _fill(order))]

    def activities(self, after: date) -> Sequence[CashActivity]:
        """What Alpaca booked after a day: deposits, withdrawals, journals of cash, fees, dividends, interest.

        What it calls otherwise is told by nothing here, and counts as a return where it moves cash.
        """
        found: list[CashActivity] = []
        asked = {"category": "non_trade_activity", "after": after.isoformat(), "direction": "asc", "page_size": BOOKED}
        while True:
            page = self._read(lambda: _Booked.validate_python(self.client.get("/account/activities", asked)))
            found += [each.told(KINDS[each.activity_type]) for each in page if each.activity_type in KINDS]
            if len(page) < BOOKED:
                return found
            asked["page_token"] = page[-1].id

    def _pages(self, status: QueryOrderStatus) -> Iterator[list[AlpacaOrder]]:
        """Orders by page, the latest first."""
        seen: set[Any] = set()
        until = None
        while True:
            request = GetOrdersRequest(status=status, limit=PAGE, until=until, direction=Sort.DESC)
            page = self._read(lambda asked=request: self.client.get_orders(asked))
            fresh = [order for order in page if order.id not in seen]
            yield fresh
            if len(page) < PAGE or not fresh:
                return
            seen.update(order.id for order in fresh)
            until = page[-1].submitted_at + timedelta(microseconds=1)  # Alpaca's times are finer than ours

    def _find(self, order_id: str) -> AlpacaOrder | None:
        return self._told(lambda: self._asked_for(order_id))

    def _asked_for(self, order_id: str) -> AlpacaOrder | None:
        try:
            return _ask(lambda: self.client.get_order_by_client_id(order_id))
        except _Refusal as refusal:
            if refusal.status != NOT_FOUND:
                raise
            return None

    def _read(self, request: Callable[[], Any]) -> Any:
        return self._told(lambda: _ask(request))

    def _told(self, attempt: Callable[[], Answer]) -> Answer:
        try:
            return self._retrying(attempt)
        except _Refusal as refusal:
            raise _failure(refusal) from None

    def _retrying(self, attempt: Callable[[], Answer]) -> Answer:
        again = retry_if_exception_type(BrokerTimeout)
        return Retrying(stop=stop_after_attempt(self.attempts), wait=self.backoff, retry=again, reraise=True)(attempt)


def _ask(request: Callable[[], Any]) -> Any:
    """The answer to one request; what alpaca-py raises holds the keys' headers, so it is not handed on."""
    try:
        return request()
    except APIError as error:
        status = error.status_code or SERVER_ERROR
        if status >= SERVER_ERROR or status == TOO_MANY_REQUESTS:
            raise _no_answer(f"HTTP {status}") from None
        raise _Refusal(status, _sentence(str(error))) from None
    except RequestException as error:
        raise _no_answer(type(error).__name__) from None
    except ValidationError as error:
        raise ExecutionError(
            f"Alpaca's answer must be as alpaca-py knows it, but is no {error.title}; install a newer alpaca-py"
        ) from None


def _no_answer(why: str) -> BrokerTimeout:
    return BrokerTimeout(f"Alpaca did not answer ({why}); ask again once it does")


def _sentence(body: str) -> str:
    """What Alpaca says in its answer to a request that it refuses."""
    try:
        return str(json.loads(body)["message"])
    except (ValueError, KeyError, TypeError):  # no answer of Alpaca's own, such as a proxy's page
        return body[:200]


def _failure(refusal: _Refusal) -> ExecutionError:
    if refusal.status in {UNAUTHORIZED, *REFUSED}:
        return ExecutionError(
            f"Alpaca refuses the keys (HTTP {refusal.status}: {refusal}); {KEY_ID} and {SECRET_KEY} in the environment "
            "must be a pair of the account, of paper trading where the account has paper: true"
        )
    return ExecutionError(f"Alpaca refuses a request (HTTP {refusal.status}: {refusal}); see the account's base_url")


def _status(order: AlpacaOrder) -> Status:
    return STATUS.get(order.status, "accepted")


def _receipt(order: AlpacaOrder) -> Receipt:
    status = _status(order)
    reason = "Alpaca took the order and rejected it later" if status == "rejected" else ""
    return Receipt(order.client_order_id, str(order.id), status, reason)


def _fill(order: AlpacaOrder) -> Fill | None:
    quantity, price = float(order.filled_qty or 0.0), float(order.filled_avg_price or 0.0)
    if not quantity:
        return None
    if not price:  # it is there once the order is processed
        raise BrokerTimeout(f"Alpaca has no price yet of what it filled of order {order.client_order_id}; ask again")
    return Fill(
        order_id=order.client_order_id,
        symbol=str(order.symbol),
        side="buy" if order.side is OrderSide.BUY else "sell",
        quantity=quantity,
        price=price,
        cost=0.0,
        session=(order.filled_at or order.updated_at).astimezone(EXCHANGE_TIME).date(),
        complete=order.status is OrderStatus.FILLED,
    )
