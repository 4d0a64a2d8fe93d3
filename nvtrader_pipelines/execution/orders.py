"""Orders: what must be bought and sold to come from what is held to what is wanted."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

from nvtrader_pipelines.execution.errors import ExecutionError
from nvtrader_pipelines.execution.plan import RebalancePlan

Side = Literal["buy", "sell"]


class Order(BaseModel):
    """One order; a broker that is given the same id twice places it once."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
    order_id: str  # plan id and symbol: a retried plan makes the same orders
    plan_id: str
    account: str
    symbol: str
    side: Side
    quantity: float  # shares, positive
    quote: float  # price in account currency that the quantity was made with
    target_weight: float  # of equity, once the order is filled whole
    session: date  # of the fill


class Fill(BaseModel):
    """What became of an order at the broker."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
    order_id: str
    symbol: str
    side: Side
    quantity: float  # shares, positive
    price: float  # average, slippage included
    cost: float  # fees, in account currency
    session: date
    complete: bool  # False: a part of the order


def order_id(plan_id: str, symbol: str) -> str:
    """The id of the one order a plan has for a name."""
    return f"{plan_id}-{symbol}"


def plan_of(order_id: str) -> str:
    """The id of the plan that an order is of."""
    return order_id.partition("-")[0]


@dataclass(frozen=True, eq=False)
class Ticket:
    """The changes a plan asks for, name by name, before they are orders."""

    plan: RebalancePlan
    session: date  # of the fill
    shares: NDArray[np.float64]  # (N,) signed: to buy, to sell; 0 makes no order
    quotes: NDArray[np.float64]  # (N,) account currency


def orders_of(ticket: Ticket, *, whole_shares: bool, min_order: float = 0.0) -> tuple[Order, ...]:
    """One order per name that changes, sells first, each in the order of the plan's symbols.

    Whole shares are rounded towards nothing; a name that is sold out is sold with its fraction. What is then worth less
    than `min_order`, in account currency, is no order.

    Raises:
        ExecutionError: if a quantity is no number.
    """
    plan = ticket.plan
    found = []
    for symbol, target, shares, quote in zip(
        plan.symbols[:-1], plan.target, ticket.shares, ticket.quotes, strict=False
    ):
        if not np.isfinite(shares):
            raise ExecutionError(
                f"an order must be for a number of shares, but {symbol} on {ticket.session} would be for {shares} at "
                f"{quote}; check its bar"
            )
        quantity = abs(float(shares))
        if whole_shares and not (target == 0.0 and shares < 0.0):
            quantity = float(np.floor(quantity + ROUNDING))
        if quantity > 0.0 and quantity * quote >= min_order:
            found.append(_order(ticket, symbol, quantity if shares > 0.0 else -quantity, float(quote), target))
    return (*(order for order in found if order.side == "sell"), *(order for order in found if order.side == "buy"))


def require_prices(
    symbols: Sequence[str], needed: NDArray[np.bool_], prices: NDArray[np.float64], session: date
) -> None:
    """Check that the names needed (N,) have prices (N,).

    Raises:
        ExecutionError: naming the first that has none, and the session.
    """
    missing = needed & ~(np.isfinite(prices) & (prices > 0.0))
    if missing.any():
        name = symbols[int(np.argmax(missing))]
        raise ExecutionError(
            f"{name} is held or wanted and must have a price on {session}, but its bar says "
            f"{prices[missing][0]}; deliver its bar again and run the market job"
        )


def _order(ticket: Ticket, symbol: str, shares: float, quote: float, target: float) -> Order:
    plan = ticket.plan
    return Order(
        order_id=order_id(plan.plan_id, symbol),
        plan_id=plan.plan_id,
        account=plan.account,
        symbol=symbol,
        side="buy" if shares > 0.0 else "sell",
        quantity=abs(shares),
        quote=quote,
        target_weight=target,
        session=ticket.session,
    )


ROUNDING = 1e-6  # of a share: what is so near to a whole one is one
