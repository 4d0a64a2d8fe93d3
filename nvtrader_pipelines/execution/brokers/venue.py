"""What the day loop needs of an account, be it filled by the bars or at a market."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from typing import ClassVar, Literal, Protocol

from nvtrader_pipelines.execution.book import HELD, AccountState
from nvtrader_pipelines.execution.brokers.broker import Receipt
from nvtrader_pipelines.execution.orders import Fill, Order
from nvtrader_pipelines.execution.plan import RebalancePlan

Settles = Literal["with_bars", "at_market"]
TOO_SMALL = "what it would change is less than an order of this account must be, or than one share"
AS_WANTED = "what can be traded is held as wanted"


@dataclass(frozen=True)
class Unplaced:
    """A name that was to be traded and was not, and why."""

    symbol: str
    reason: str


def no_order(plan: RebalancePlan, unplaced: Sequence[Unplaced]) -> str:
    """Why a plan makes no order, in words, where `unplaced` is what it was to trade and could not."""
    reasons = dict.fromkeys(each.reason for each in unplaced)
    said = {each.symbol for each in unplaced}
    weights = zip(plan.symbols[:-1], plan.held, plan.target, strict=False)
    if any(abs(target - held) > HELD for name, held, target in weights if name not in said):
        reasons[TOO_SMALL] = None
    return f"it makes no order: {'; '.join(reasons or [AS_WANTED])}"


@dataclass(frozen=True)
class Outcome:
    """What became of the orders that were placed for a plan."""

    fills: Sequence[Fill]
    ended: Sequence[Unplaced]  # without a fill, and why


@dataclass(frozen=True)
class InForce:
    """Which policy moves the account, for its book."""

    policy: str
    run_id: str
    spec_hash: str


class Venue(Protocol):
    """An account on a panel; `t` numbers the panel's sessions."""

    settles: ClassVar[Settles]  # with_bars: orders are made and filled once the fill session's bars are known

    def last(self) -> AccountState | None:
        """The account at the last close it was settled at; None where it is not open."""
        ...

    def at(self, session: date) -> AccountState | None:
        """The account at the close of an earlier session; None where it was not open."""
        ...

    def open_at(self, t: int, in_force: InForce) -> AccountState:
        """Open the account at the close of session `t`; one that is open stays as it is."""
        ...

    def orders(self, plan: RebalancePlan, t: int) -> tuple[Sequence[Order], Sequence[Unplaced]]:
        """The orders of a plan decided at the close of session `t`, sells first, and what makes none.

        Raises:
            ExecutionError: if a name held or wanted has no price where it must have one.
        """
        ...

    def booked(self, plan_id: str) -> Sequence[Order]:
        """The orders of a plan that are kept, placed or about to be."""
        ...

    def submit(self, order: Order) -> Receipt:
        """Place an order; one whose id is known is not placed again."""
        ...

    def cancel(self, order: Order, reason: str) -> bool:
        """Cancel an order if it is open; whether nothing of it is filled, or will be."""
        ...

    def cancel_open(self, reason: str) -> None:
        """Cancel every open order of this account."""
        ...

    def fill(self, plan: RebalancePlan, t: int) -> Outcome:
        """What became of the orders placed for a plan decided at the close of session `t`."""
        ...

    def unexplained(self) -> Sequence[str]:
        """What differed at the last close and differs still, a sentence each."""
        ...

    def settle(
        self, t: int, plan: RebalancePlan | None, in_force: InForce, *, decided: bool, accepted: bool
    ) -> AccountState:
        """Mark the account to the close of session `t`, reconcile and keep it; one that is kept is left as it is.

        Args:
            t: the session.
            plan: whose orders may have been filled in it.
            in_force: whose account it is.
            decided: whether it follows a decision, be it not to trade: delisted names are then paid out.
            accepted: whether a person took what differed at the close before as it was.
        """
        ...
