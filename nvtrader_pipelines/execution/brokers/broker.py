"""Broker protocol: holdings, cash activities, and one order at a time."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Literal, Protocol

from nvtrader_pipelines.execution.orders import Fill, Order

Status = Literal["accepted", "rejected", "filled", "cancelled"]
CashKind = Literal["flow", "fee", "income"]  # deposits and withdrawals; trading fees; dividends and interest


class BrokerTimeout(TimeoutError):  # noqa: N818 - the name says what happened
    """Request without an answer: the order may exist or not; submit it again with the same id."""


@dataclass(frozen=True)
class Receipt:
    """Broker's answer to an order."""

    order_id: str
    broker_order_id: str
    status: Status
    reason: str = ""  # of a rejection


@dataclass(frozen=True)
class BrokerHoldings:
    """Holdings of an account according to the broker."""

    shares: Mapping[str, float]  # by symbol; missing names are not held
    cash: float  # account currency
    equity: float
    to_spend: float | None = None  # cash for new buys, neither borrowed nor reserved by open orders; None: all cash


@dataclass(frozen=True)
class CashActivity:
    """Movement of cash without an order."""

    activity_id: str
    kind: CashKind
    amount: float  # account currency, negative for an outflow; 0 if cancelled


class Broker(Protocol):
    """Account at a broker."""

    def holdings(self) -> BrokerHoldings:
        """Return the current holdings."""
        ...

    def submit(self, order: Order) -> Receipt:
        """Place an order, once per id.

        Raises:
            BrokerTimeout: if there is no answer.
        """
        ...

    def open_orders(self) -> Sequence[Receipt]:
        """Return orders that are accepted and neither filled nor cancelled."""
        ...

    def cancel(self, order_id: str) -> None:
        """Cancel an order if it is open."""
        ...

    def fills(self, plan_id: str) -> Sequence[Fill]:
        """Return the fills of a plan's orders so far.

        Raises:
            BrokerTimeout: if the broker does not know a price yet.
        """
        ...

    def activities(self, after: date) -> Sequence[CashActivity]:
        """Return the cash activities booked after a day, each once."""
        ...
