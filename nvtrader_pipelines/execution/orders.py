"""Orders: what must be bought and sold to come from what is held to what is wanted."""

from datetime import date
from typing import Literal

from pydantic import BaseModel, ConfigDict

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
