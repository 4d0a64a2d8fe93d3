"""Book of an account: its state at every close, its orders and their fills."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Protocol, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from nvtrader_pipelines.envs.account import Account
from nvtrader_pipelines.execution.brokers.broker import Status
from nvtrader_pipelines.execution.errors import ExecutionError
from nvtrader_pipelines.execution.orders import Fill, Order
from nvtrader_pipelines.portfolio.cash import CASH
from nvtrader_pipelines.portfolio.losses import NEVER, IntArray, count_since_loss

RUIN = "the account lost all and trades nothing more; `nvtrader portfolio reset` empties a simulated one"
MIN_HOLDING = 1e-12  # of equity: smaller weights count as zero


class AccountState(BaseModel):
    """Account at a close; equity is 1 at its opening, and equity times capital is its value.

    Equity is the value of one unit bought at the opening, and capital the number of units: cash flows change the
    capital and are not returns.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
    session: date
    symbols: tuple[str, ...]  # names, cash last
    weights: tuple[float, ...]  # of equity, in the order of the symbols
    equity: float
    peak: float  # running maximum of equity
    recent_returns: tuple[float, ...]  # net session returns, the latest last; 0 before the opening
    capital: float  # account currency per unit of equity
    kept_at: str  # custodian of the account, from its spec
    shares: Mapping[str, float]  # by name held, adjusted as the session's prices are
    prices: Mapping[str, float]  # closes that value the shares, account currency, adjusted
    net_return: float = 0.0  # over the session, net of costs, without cash flows
    turnover: float = 0.0  # one-way, at this session's fill
    cost: float = 0.0  # fraction of equity, at this session's fill, with the fees booked since the last close
    gross_before_cap: float | None = None  # of names, before the cap at the close; None of a long-only account
    financing: float = 0.0  # paid in the session, a fraction of equity at the close before
    cap_turnover: float = 0.0  # one-way, of the cap's trades at the close
    cap_cost: float = 0.0  # of these trades, a fraction of equity
    flow: float = 0.0  # account currency paid in, or (negative) out, since the last close
    income: float = 0.0  # dividends and interest booked since the last close, account currency, part of the return
    plan_id: str | None = None  # plan whose orders were filled in this session
    in_replay: bool = False  # whether a replay of history traded the session; only a person continues it
    policy: str  # in force
    run_id: str
    spec_hash: str
    snapshot_ids: Mapping[str, int] = Field(default_factory=dict)  # of the session's panel
    differences: tuple[str, ...] = ()  # differences found by reconciliation, a sentence each
    expected: Mapping[str, float] | None = None  # expected shares by name, if they differ from the actual ones
    working: Mapping[str, float] = Field(default_factory=dict)  # filled shares of each order that was open at the close
    counted: Mapping[str, float] | None = None  # amounts of known cash activities by id; None: activities unknown
    since_loss: Mapping[str, int] = Field(default_factory=dict)  # by name that lost, as of the last decision
    outcomes: Mapping[str, tuple[float, float, float]] = Field(default_factory=dict)  # value, basis, cost since then

    @property
    def value(self) -> float:
        """Equity in account currency."""
        return self.equity * self.capital

    @property
    def gross(self) -> float:
        """Sum of absolute weights of names."""
        return sum(map(abs, self.weights[:-1]))

    def profit_since(self, before: Self) -> float:
        """Account currency gained since the close before, without deposits and withdrawals."""
        return self.value - before.value - self.flow

    @property
    def ruin(self) -> str:
        """Sentence that the account lost everything, so that nothing is decided for it; empty if it has not."""
        return RUIN if self.equity == 0.0 else ""

    @property
    def drawdown(self) -> float:
        """Loss from the running maximum of equity, a positive fraction."""
        return 1.0 - self.equity / self.peak

    def account(self, symbols: Sequence[str]) -> Account:
        """Return the account for policies and the transition, over the names of a panel.

        Raises:
            ExecutionError: if the account holds a name that the panel lacks.
        """
        names = (*symbols, CASH)
        held = dict(zip(self.symbols, self.weights, strict=True))
        unknown = [name for name, weight in held.items() if name not in names and abs(weight) > MIN_HOLDING]
        if unknown:
            raise ExecutionError(
                f"the account must hold names of the active policy's market only, but holds {', '.join(unknown)}; "
                "sell them with a policy that trades them, empty a simulated account by `nvtrader portfolio reset`, or "
                "use another account"
            )
        weights = np.array([held.get(name, 0.0) for name in names])
        since_loss = count_since_loss(self.losses_by(symbols), self.outcomes_by(symbols))
        return Account(weights, self.equity, self.peak, np.array(self.recent_returns), since_loss)

    def losses_by(self, symbols: Sequence[str]) -> IntArray:
        """Decisions since the last loss of a panel's names, as of the last decision, (N,)."""
        return np.array([self.since_loss.get(symbol, NEVER) for symbol in symbols])

    def outcomes_by(self, symbols: Sequence[str]) -> NDArray[np.float64]:
        """Outcomes of a panel's names since the last decision, (3, N)."""
        return np.array([self.outcomes.get(symbol, (0.0, 0.0, 0.0)) for symbol in symbols]).T

    def with_outcomes(self, symbols: Sequence[str], since_loss: IntArray, outcomes: NDArray[np.float64]) -> Self:
        """Return the state with the losses (N,) as of the last decision and the outcomes (3, N) since."""
        counts, rows = since_loss.tolist(), map(tuple, outcomes.T.tolist())
        lost = {name: n for name, n in zip(symbols, counts, strict=True) if n < NEVER}
        changed = {name: row for name, row in zip(symbols, rows, strict=True) if any(row)}
        return self.model_copy(update={"since_loss": lost, "outcomes": changed})


class BookedOrder(BaseModel):
    """Order in the book, with its status."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    order: Order
    status: Status
    reason: str = ""  # of a rejection or cancellation

    @classmethod
    def accept(cls, order: Order) -> Self:
        """Make an open order."""
        return cls(order=order, status="accepted")


@dataclass(frozen=True)
class BookIndex:
    """Keys of a book's states, orders and fills."""

    sessions: frozenset[date]  # of states
    orders: frozenset[str]  # ids
    fills: frozenset[str]  # ids of their orders


class AccountBook(Protocol):
    """Store of an account's states, orders and fills; every call is durable and atomic."""

    def index(self) -> BookIndex:
        """Return the keys of all entries."""
        ...

    def last(self) -> AccountState | None:
        """Return the state at the last settled close; None if the account is not open."""
        ...

    def at(self, session: date) -> AccountState | None:
        """Return the state at the close of a session; None if it was not settled."""
        ...

    def settle(self, state: AccountState) -> None:
        """Store a state; a session that is already settled stays unchanged."""
        ...

    def place(self, *orders: BookedOrder) -> None:
        """Store orders together; orders with a known id stay unchanged."""
        ...

    def orders(self, plan_id: str) -> Sequence[BookedOrder]:
        """Return a plan's orders in the order they were placed."""
        ...

    def open_orders(self) -> Sequence[BookedOrder]:
        """Return orders that are accepted and neither filled nor cancelled."""
        ...

    def cancel(self, order_id: str, reason: str) -> None:
        """Cancel an order if it is open."""
        ...

    def fill(self, fills: Sequence[Fill], rest: Mapping[str, str]) -> None:
        """Store fills of a plan's orders and cancel the orders of `rest` (id to reason), together."""
        ...

    def fills(self, plan_id: str) -> Sequence[Fill]:
        """Return the fills of a plan's orders."""
        ...
