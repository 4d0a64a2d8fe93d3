"""An account's own book: its state at every close, and at the paper broker its orders and their fills."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Protocol, Self

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from nvtrader_pipelines.envs.account import Account
from nvtrader_pipelines.execution.brokers.broker import Status
from nvtrader_pipelines.execution.errors import ExecutionError
from nvtrader_pipelines.execution.orders import Fill, Order
from nvtrader_pipelines.portfolio.cash import CASH

HELD = 1e-12  # of equity: a weight below it is no holding
PUT_BACK = "move it, its -wal and its -shm file away, and put the newest copy back"  # SQLite lays a -wal over any copy


class AccountState(BaseModel):
    """An account at a close; equity is 1 at its opening, and shares are what weights of equity times capital buy.

    Equity is what one unit bought at the opening is worth: what is paid in or out changes the capital, which is the
    number of units, and is no return.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
    session: date
    symbols: tuple[str, ...]  # names, cash last
    weights: tuple[float, ...]  # of equity, in the order of the symbols
    equity: float
    peak: float  # highest equity so far
    recent_returns: tuple[float, ...]  # net session returns, the latest last; 0 before the opening
    capital: float  # account currency that an equity of 1 is
    kept_at: str  # who has the account, as its spec says
    shares: Mapping[str, float]  # by name held, at the prices' adjustment of the session
    prices: Mapping[str, float]  # closes that the shares are valued at, account currency, adjusted
    net_return: float = 0.0  # over the session, net of costs; what was paid in or out is none
    turnover: float = 0.0  # one-way, at this session's fill
    cost: float = 0.0  # fraction of equity, at this session's fill, with the fees booked since the last close
    flow: float = 0.0  # account currency paid in, or (negative) out, since the last close
    income: float = 0.0  # dividends and interest booked since the last close, account currency, a part of the return
    plan_id: str | None = None  # whose orders were filled in this session
    policy: str  # in force
    run_id: str
    spec_hash: str
    snapshot_ids: Mapping[str, int] = Field(default_factory=dict)  # of the panel that moved it
    differences: tuple[str, ...] = ()  # names not held as expected, by reconciliation
    expected: Mapping[str, float] | None = None  # shares that should be held, where others are
    working: Mapping[str, float] = Field(default_factory=dict)  # orders that waited at the close: shares filled of each
    counted: Mapping[str, float] | None = None  # cash activities known at the close: account currency; None: none asked

    @property
    def value(self) -> float:
        """Equity in account currency."""
        return self.equity * self.capital

    @property
    def drawdown(self) -> float:
        """Loss from the highest equity so far, a positive fraction."""
        return 1.0 - self.equity / self.peak

    def account(self, symbols: Sequence[str]) -> Account:
        """The account as policies and the transition know it, over the names of a panel.

        Raises:
            ExecutionError: if a name is held that the panel does not have.
        """
        names = (*symbols, CASH)
        held = dict(zip(self.symbols, self.weights, strict=True))
        strangers = [name for name, weight in held.items() if name not in names and weight > HELD]
        if strangers:
            raise ExecutionError(
                f"the account holds {', '.join(strangers)}, which the market of the active policy does not have; "
                "sell them with a policy that trades them, or use another account"
            )
        weights = np.array([held.get(name, 0.0) for name in names])
        return Account(weights, self.equity, self.peak, np.array(self.recent_returns))


class BookedOrder(BaseModel):
    """An order as the paper broker has it."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    order: Order
    status: Status
    reason: str = ""  # why it is rejected or cancelled

    @classmethod
    def accepted(cls, order: Order) -> Self:
        """One that is open."""
        return cls(order=order, status="accepted")


@dataclass(frozen=True)
class Kept:
    """What a book has something of."""

    sessions: frozenset[date]  # settled
    orders: frozenset[str]  # ids
    fills: frozenset[str]  # ids of their orders


class AccountBook(Protocol):
    """Where an account is kept: every call is one effect, durable when it returns and there whole or not at all."""

    def kept(self) -> Kept:
        """What it has something of."""
        ...

    def last(self) -> AccountState | None:
        """The account at the last close it was settled at; None where it is not open."""
        ...

    def at(self, session: date) -> AccountState | None:
        """The account at the close of one session; None where it was not settled there."""
        ...

    def settle(self, state: AccountState) -> None:
        """Keep a state; one of a session that is kept already is left as it is."""
        ...

    def place(self, *orders: BookedOrder) -> None:
        """Keep orders together; one whose id is kept already is left as it is."""
        ...

    def orders(self, plan_id: str) -> Sequence[BookedOrder]:
        """A plan's orders in the order they were placed."""
        ...

    def open_orders(self) -> Sequence[BookedOrder]:
        """Orders that are accepted and neither filled nor cancelled."""
        ...

    def cancel(self, order_id: str, reason: str) -> None:
        """Cancel an open order; one that is not open is left."""
        ...

    def fill(self, fills: Sequence[Fill], rest: Mapping[str, str]) -> None:
        """Keep the fills of a plan's orders together, and cancel those of `rest` (order id to reason)."""
        ...

    def fills(self, plan_id: str) -> Sequence[Fill]:
        """What was filled of a plan's orders."""
        ...
