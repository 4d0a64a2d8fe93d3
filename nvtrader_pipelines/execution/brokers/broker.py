"""What every broker answers: what is held, and one order at a time."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Literal, Protocol

from nvtrader_pipelines.execution.orders import Fill, Order

Status = Literal["accepted", "rejected", "filled", "cancelled"]
CashKind = Literal["flow", "fee", "income"]  # paid in or out; of trading, on a later day too; dividends and interest


class BrokerTimeout(TimeoutError):  # noqa: N818 - the name says what happened
    """The broker did not answer: the order may be there or not; submit it again under the same id."""


@dataclass(frozen=True)
class Receipt:
    """What the broker says of an order."""

    order_id: str
    broker_order_id: str
    status: Status
    reason: str = ""  # of a rejection


@dataclass(frozen=True)
class Holdings:
    """What an account holds by the broker's own books."""

    shares: Mapping[str, float]  # by symbol; names that are not there are not held
    cash: float  # account currency
    equity: float
    to_spend: float | None = None  # cash that buys may use now, not borrowed nor of open orders; None: all of it


@dataclass(frozen=True)
class CashActivity:
    """Cash that came to an account, or left it, by no order."""

    activity_id: str
    kind: CashKind
    amount: float  # account currency, negative where it left; 0 where it was taken back


class Broker(Protocol):
    """An account at a broker."""

    def holdings(self) -> Holdings:
        """What is held now."""
        ...

    def submit(self, order: Order) -> Receipt:
        """Place an order; one whose id the broker knows is not placed again.

        Raises:
            BrokerTimeout: if there is no answer.
        """
        ...

    def open_orders(self) -> Sequence[Receipt]:
        """Orders that are accepted and neither filled nor cancelled."""
        ...

    def cancel(self, order_id: str) -> None:
        """Cancel an open order; one that is not open any more is left."""
        ...

    def fills(self, plan_id: str) -> Sequence[Fill]:
        """What was filled of a plan's orders so far.

        Raises:
            BrokerTimeout: if the broker does not know yet at what price.
        """
        ...

    def activities(self, after: date) -> Sequence[CashActivity]:
        """What was booked after a day, each once."""
        ...
