"""Orders and fills, the orders of a plan, and the prices that size and value shares."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

from nvtrader_pipelines.components.arrays import FloatArray
from nvtrader_pipelines.execution.errors import ExecutionError
from nvtrader_pipelines.execution.plan import RebalancePlan

if TYPE_CHECKING:  # polars takes long to import
    from nvtrader_pipelines.envs.fill_timing import FillTiming

Side = Literal["buy", "sell"]
_OF_BOT = re.compile(r"[a-z0-9-]+\.([0-9a-f]{16})-.*")  # order id of a bot's plan


class Order(BaseModel):
    """Market order; a broker places an id at most once."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
    order_id: str  # bot, plan id and symbol: a retried plan gives the same ids
    plan_id: str
    account: str
    symbol: str
    side: Side
    quantity: float  # shares, positive
    quote: float  # price in account currency that the quantity was computed at
    target_weight: float  # of equity, once the order is filled completely
    session: date  # of the fill


class Fill(BaseModel):
    """Execution of an order at the broker."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
    order_id: str
    symbol: str
    side: Side
    quantity: float  # shares, positive
    price: float  # average, with slippage
    cost: float  # fees, in account currency
    session: date
    complete: bool  # False: a partial fill


def order_id(plan_id: str, symbol: str, bot: str = "") -> str:
    """Id of a plan's only order for a name; it begins with the plan's bot, if it has one."""
    return f"{bot}.{plan_id}-{symbol}" if bot else f"{plan_id}-{symbol}"


def plan_id_of(order_id: str) -> str:
    """Id of the plan of an order."""
    of_bot = _OF_BOT.fullmatch(order_id)
    return of_bot[1] if of_bot else order_id.partition("-")[0]


@dataclass(frozen=True, eq=False)
class Ticket:
    """Changes of a plan per name, before rounding to orders."""

    plan: RebalancePlan
    session: date  # of the fill
    shares: FloatArray  # (N,) positive to buy, negative to sell; 0 makes no order
    quotes: FloatArray  # (N,) account currency


def make_orders(ticket: Ticket, *, whole_shares: bool, min_order: float = 0.0) -> tuple[Order, ...]:
    """Make one order per name that changes, sells first, in the order of the plan's symbols.

    With `whole_shares`, quantities are rounded toward zero, except that an order that closes a position includes the
    fraction.
    Orders worth less than `min_order`, in account currency, are dropped.

    Raises:
        ExecutionError: if a quantity is not finite.
    """
    plan = ticket.plan
    orders = []
    for symbol, target, shares, quote in zip(
        plan.symbols[:-1], plan.target, ticket.shares, ticket.quotes, strict=False
    ):
        if not np.isfinite(shares):
            raise ExecutionError(
                f"an order must be for a number of shares, but {symbol} on {ticket.session} would be for {shares} at "
                f"{quote}; check its bar"
            )
        quantity = abs(float(shares))
        if whole_shares and target != 0.0:
            quantity = float(np.floor(quantity + ROUNDING))
        if quantity > 0.0 and quantity * quote >= min_order:
            orders.append(_order(ticket, symbol, quantity if shares > 0.0 else -quantity, float(quote), target))
    return (*(order for order in orders if order.side == "sell"), *(order for order in orders if order.side == "buy"))


def require_prices(symbols: Sequence[str], needed: NDArray[np.bool_], prices: FloatArray, session: date) -> None:
    """Raise unless all needed names (N,) have prices (N,).

    Raises:
        ExecutionError: with the first name without a price, and the session.
    """
    missing = needed & ~(np.isfinite(prices) & (prices > 0.0))
    if missing.any():
        name = symbols[int(np.argmax(missing))]
        raise ExecutionError(
            f"{name} is held or targeted and must have a price on {session}, but its bar has "
            f"{prices[missing][0]}; deliver its bar again and run the market job"
        )


def _order(ticket: Ticket, symbol: str, shares: float, quote: float, target: float) -> Order:
    plan = ticket.plan
    return Order(
        order_id=order_id(plan.plan_id, symbol, plan.bot),
        plan_id=plan.plan_id,
        account=plan.account,
        symbol=symbol,
        side="buy" if shares > 0.0 else "sell",
        quantity=abs(shares),
        quote=quote,
        target_weight=target,
        session=ticket.session,
    )


ROUNDING = 1e-6  # of a share: tolerance below a whole share


@dataclass(frozen=True, eq=False)
class PanelPrices:
    """Prices of a panel's names and sessions, adjusted as its returns are; NaN without a bar."""

    opens: FloatArray  # (T, N); the close for a bar without an open
    closes: FloatArray  # (T, N)
    last_closes: FloatArray  # (T, N) forward-filled closes, also from before the panel; NaN before the first close
    volumes: FloatArray  # (T, N) shares, adjusted as the prices are; NaN if unknown

    def fill_prices(self, fill: "FillTiming") -> FloatArray:
        """Prices at which orders fill, (T, N)."""
        return self.opens if fill == "next_open" else self.closes
