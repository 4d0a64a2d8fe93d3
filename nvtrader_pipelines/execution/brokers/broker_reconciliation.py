"""Changes of an account at a broker since its last close: fills, splits and cash activities."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from fractions import Fraction

import numpy as np

from nvtrader_pipelines.execution.book import AccountBook, AccountState
from nvtrader_pipelines.execution.brokers.broker import Broker, CashActivity, CashKind
from nvtrader_pipelines.execution.errors import ExecutionError
from nvtrader_pipelines.execution.orders import Fill, Order, Side, plan_id_of
from nvtrader_pipelines.execution.plan import RebalancePlan

MAX_BOOKING_DELAY = timedelta(days=30)  # of a cash activity at a broker
MAX_SPLIT = 5, 100  # maximum of the smaller and the larger number of a split: 3 for 2, 6 for 5, 1 for 50
SPLIT_TOLERANCE = 0.05  # relative: bars may also be adjusted for dividends on the days of a split


@dataclass(frozen=True)
class FillsSinceClose:
    """Fills since the last close, and open orders."""

    new: Sequence[Fill]  # each with the shares filled since the last close
    working: Mapping[str, float] = field(default_factory=dict)  # filled shares of each open order

    def traded_value(self, side: Side) -> float:
        """Value bought or sold, account currency."""
        return sum(fill.quantity * fill.price for fill in self.new if fill.side == side)

    def apply(self, shares: Mapping[str, float]) -> dict[str, float]:
        """Return shares by name after the fills."""
        held = dict(shares)
        for fill in self.new:
            signed = fill.quantity if fill.side == "buy" else -fill.quantity
            held[fill.symbol] = held.get(fill.symbol, 0.0) + signed
        return held


def fills_since(before: AccountState, plan: RebalancePlan | None, broker: Broker, book: AccountBook) -> FillsSinceClose:
    """Return the fills since the last close of its plan and of orders that were open then.

    Shares that the last close already included are subtracted; open orders count with their partial fills.
    """
    own = {plan.plan_id} if plan is not None and plan.session >= before.session else set()
    opened = [open_order.order for open_order in book.open_orders()]
    ended = [fill for plan_id in sorted(own | set(map(plan_id_of, before.working))) for fill in book.fills(plan_id)]
    partial, new = _partial_fills(broker, opened), []
    for fill in (*ended, *partial):
        since = fill.quantity - before.working.get(fill.order_id, 0.0)
        if since and (fill.order_id in before.working or plan_id_of(fill.order_id) in own):
            new.append(fill.model_copy(update={"quantity": since}))
    unfilled = {order.order_id: 0.0 for order in opened}
    return FillsSinceClose(new, unfilled | {fill.order_id: fill.quantity for fill in partial})


def split_ratio(before: float, now: float, adjusted: float) -> float:
    """Shares per old share after a split; 1 without a split that holdings and bars agree on.

    Args:
        before: shares before the split.
        now: shares held now, without trades since.
        adjusted: the earlier close as known then, as a multiple of the same close in the bars now.
    """
    ratio = Fraction(now / before).limit_denominator(MAX_SPLIT[1]) if before > 0.0 and now > 0.0 else Fraction(1)
    smaller, larger = sorted((ratio.numerator, ratio.denominator))
    is_simple = 0 < smaller <= MAX_SPLIT[0] and larger <= MAX_SPLIT[1]
    return float(ratio) if is_simple and np.isclose(adjusted, float(ratio), rtol=SPLIT_TOLERANCE, atol=0.0) else 1.0


def open_quantities(broker: Broker, book: AccountBook, plan: RebalancePlan) -> dict[str, float]:
    """Unfilled shares by name of other plans' open orders, negative for sells."""
    opened = [open_order.order for open_order in book.open_orders() if open_order.order.plan_id != plan.plan_id]
    filled = {fill.order_id: fill.quantity for fill in _partial_fills(broker, opened)}
    unfilled = dict[str, float]()
    for order in opened:
        shares = order.quantity - filled.get(order.order_id, 0.0)
        unfilled[order.symbol] = unfilled.get(order.symbol, 0.0) + (shares if order.side == "buy" else -shares)
    return unfilled


def cash_by_kind(before: AccountState, activities: Sequence[CashActivity]) -> dict[CashKind, float]:
    """Account currency by kind booked since the last close; each activity counts once, net of corrections."""
    known, booked = before.counted, dict[CashKind, float]({"flow": 0.0, "fee": 0.0, "income": 0.0})
    if known is not None:
        for activity in activities:
            booked[activity.kind] += activity.amount - known.get(activity.activity_id, 0.0)
    return booked


def unitize(before: AccountState, value: float, flow: float) -> tuple[float, float]:
    """Equity and capital of an account worth `value` after a cash flow, which buys units at the close.

    Raises:
        ExecutionError: if more was paid in than the account is worth.

    Source: Bacon (2008), Practical Portfolio Performance Measurement, time-weighted return with flows at the end.
    """
    if not value - flow > 0.0:
        raise ExecutionError(
            f"deposits must be less than the account's value, but {flow:.2f} was paid in since {before.session} and "
            f"the account is worth {value:.2f}; check the account at the broker, and trade once its figures agree"
        )
    return (value - flow) / before.capital, before.capital * (value / (value - flow))


def _partial_fills(broker: Broker, opened: Sequence[Order]) -> list[Fill]:
    """Fills so far of open orders."""
    ids = {order.order_id for order in opened}
    plans = dict.fromkeys(order.plan_id for order in opened)
    return [fill for plan_id in plans for fill in broker.fills(plan_id) if fill.order_id in ids]
