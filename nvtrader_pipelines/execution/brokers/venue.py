"""Venue: an account that the day loop trades, simulated on disk or at a broker."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from typing import ClassVar, Protocol

from nvtrader_pipelines.execution.book import MIN_HOLDING, AccountBook, AccountState
from nvtrader_pipelines.execution.brokers.broker import Receipt
from nvtrader_pipelines.execution.errors import ExecutionError
from nvtrader_pipelines.execution.orders import Fill, Order
from nvtrader_pipelines.execution.plan import RebalancePlan

TOO_SMALL = "its changes are below the account's smallest order, or below one share"
ON_TARGET = "all tradable names are held at their targets"


@dataclass(frozen=True)
class UnplacedOrder:
    """Name of a plan that is not traded, with the reason."""

    symbol: str
    reason: str


def no_order_reason(plan: RebalancePlan, unplaced: Sequence[UnplacedOrder]) -> str:
    """Why a plan makes no order, given the names that could not be traded."""
    reasons = dict.fromkeys(order.reason for order in unplaced)
    explained = {order.symbol for order in unplaced}
    weights = zip(plan.symbols[:-1], plan.held, plan.target, strict=False)
    if any(abs(target - held) > MIN_HOLDING for name, held, target in weights if name not in explained):
        reasons[TOO_SMALL] = None
    return f"it makes no order: {'; '.join(reasons or [ON_TARGET])}"


@dataclass(frozen=True)
class OrderOutcomes:
    """Outcomes of a plan's placed orders."""

    fills: Sequence[Fill]
    ended: Sequence[UnplacedOrder]  # without a fill, with the reason


@dataclass(frozen=True)
class PolicyInForce:
    """Policy that trades the account, as recorded in its book."""

    policy: str
    run_id: str
    spec_hash: str
    replayed_to: date | None = None  # last session of a replay of history; None without one


class OrderSettings(Protocol):
    """Settings of an account by which its orders are sized."""

    @property
    def kept_at(self) -> str:
        """Custodian of the account."""
        ...

    @property
    def whole_shares(self) -> bool:
        """Whether orders are rounded down to whole shares."""
        ...

    @property
    def min_order(self) -> float:
        """Value of the smallest order, account currency."""
        ...

    @property
    def skip_below(self) -> float:
        """Absolute change of weight that makes no order if it is smaller."""
        ...


class Venue(ABC):
    """Account on a panel, with its states and orders in a book; `t` numbers the panel's sessions."""

    is_live: ClassVar[bool]  # False: orders are made and filled once the bars of the fill session are known

    def __init__(self, book: AccountBook) -> None:
        self._book = book

    def last(self) -> AccountState | None:
        """Return the state at the last settled close; None if the account is not open."""
        return self._book.last()

    def at(self, session: date) -> AccountState | None:
        """Return the state at the close of an earlier session; None if it was not open."""
        return self._book.at(session)

    def plan_orders(self, plan_id: str) -> Sequence[Order]:
        """Return the stored orders of a plan; at a live venue, some may not be placed yet."""
        return [order.order for order in self._book.orders(plan_id)]

    def _require_open(self) -> AccountState:
        """Return the last state, or raise if the account is not open."""
        state = self._book.last()
        if state is None:
            raise ExecutionError("the account must be open before it trades, but is not; open it at a session")
        return state

    def _open_orders(self, plan_id: str) -> list[Order]:
        """Return the accepted orders of a plan that are neither filled nor cancelled."""
        return [order.order for order in self._book.orders(plan_id) if order.status == "accepted"]

    def _outcomes(self, plan_id: str) -> OrderOutcomes:
        """Return the outcomes of a plan's orders in the book."""
        booked = self._book.orders(plan_id)
        ended = [UnplacedOrder(entry.order.symbol, entry.reason) for entry in booked if entry.status == "cancelled"]
        return OrderOutcomes(self._book.fills(plan_id), ended)

    @abstractmethod
    def open_at(self, t: int, in_force: PolicyInForce) -> AccountState:
        """Open the account at the close of session `t`; an open account stays unchanged."""

    @abstractmethod
    def orders(self, plan: RebalancePlan, t: int) -> tuple[Sequence[Order], Sequence[UnplacedOrder]]:
        """Make the orders of a plan decided at the close of session `t`, sells first, and list untradable names.

        Raises:
            ExecutionError: if a name that is held or targeted lacks a necessary price.
        """

    @abstractmethod
    def submit(self, order: Order) -> Receipt:
        """Place an order, once per id."""

    @abstractmethod
    def cancel(self, order: Order, reason: str) -> bool:
        """Cancel an order if it is open; return whether it has no fill and will have none."""

    @abstractmethod
    def cancel_open(self, reason: str) -> None:
        """Cancel every open order of the account."""

    @abstractmethod
    def fill(self, plan: RebalancePlan, t: int) -> OrderOutcomes:
        """Return the outcomes of the orders of a plan decided at the close of session `t`."""

    @abstractmethod
    def open_differences(self) -> Sequence[str]:
        """Return the differences of the last close that still exist, a sentence each."""

    @abstractmethod
    def settle(
        self, t: int, plan: RebalancePlan | None, in_force: PolicyInForce, *, decided: bool, accepted: bool
    ) -> AccountState:
        """Mark the account to the close of session `t`, reconcile and store it; a settled session stays unchanged.

        Args:
            t: the session.
            plan: the plan whose orders may have been filled in it.
            in_force: the policy that trades the account.
            decided: whether a decision, also one not to trade, precedes the session: delisted names are then paid out.
            accepted: whether a person accepted the differences at the close before.
        """
