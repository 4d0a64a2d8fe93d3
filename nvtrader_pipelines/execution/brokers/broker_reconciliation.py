"""What moved an account at a broker since its last close: fills, late and partial too, and cash that no order moved."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from fractions import Fraction

import numpy as np

from nvtrader_pipelines.execution.book import AccountBook, AccountState
from nvtrader_pipelines.execution.brokers.broker import Broker, CashActivity, CashKind
from nvtrader_pipelines.execution.errors import ExecutionError
from nvtrader_pipelines.execution.orders import Fill, Order, Side, plan_of
from nvtrader_pipelines.execution.plan import RebalancePlan

LATE = timedelta(days=30)  # that a broker may take to book what happened
SPLIT = 5, 100  # most of the smaller and of the larger number of a split: 3 for 2, 6 for 5, 1 for 50
DIVIDENDS = 0.05  # that bars may have been adjusted for on the days of a split


@dataclass(frozen=True)
class Fills:
    """What was filled since the last close, and what is still at work."""

    new: Sequence[Fill]  # each with the shares that came since the last close
    working: Mapping[str, float] = field(default_factory=dict)  # orders that still wait: shares filled of each so far

    def traded(self, side: Side) -> float:
        """Account currency that changed hands on one side."""
        return sum(fill.quantity * fill.price for fill in self.new if fill.side == side)

    def after(self, shares: Mapping[str, float]) -> dict[str, float]:
        """Shares by name that the fills leave of those before."""
        held = dict(shares)
        for fill in self.new:
            signed = fill.quantity if fill.side == "buy" else -fill.quantity
            held[fill.symbol] = held.get(fill.symbol, 0.0) + signed
        return held


def fills_since(before: AccountState, plan: RebalancePlan | None, broker: Broker, book: AccountBook) -> Fills:
    """Fills of the plan that was decided at the last close, and of orders that waited then, whenever they ended.

    What the last close counted of an order is not counted again; of one that still waits, its part so far is.
    """
    own = {plan.plan_id} if plan is not None and plan.session >= before.session else set()
    waiting = [each.order for each in book.open_orders()]
    found = [fill for plan_id in sorted(own | set(map(plan_of, before.working))) for fill in book.fills(plan_id)]
    parts, new = _parts(broker, waiting), []
    for fill in (*found, *parts):
        since = fill.quantity - before.working.get(fill.order_id, 0.0)
        if since and (fill.order_id in before.working or plan_of(fill.order_id) in own):
            new.append(fill.model_copy(update={"quantity": since}))
    nothing = {order.order_id: 0.0 for order in waiting}
    return Fills(new, nothing | {fill.order_id: fill.quantity for fill in parts})


def split(before: float, now: float, adjusted: float) -> float:
    """How many shares a split made of one; 1 where there was none.

    Args:
        before: shares before it.
        now: shares held since, without what was bought or sold.
        adjusted: the close of before as it was known then, as a multiple of what the bars say of it now.
    """
    ratio = Fraction(now / before).limit_denominator(SPLIT[1]) if before > 0.0 and now > 0.0 else Fraction(1)
    smaller, larger = sorted((ratio.numerator, ratio.denominator))
    is_simple = 0 < smaller <= SPLIT[0] and larger <= SPLIT[1]
    return float(ratio) if is_simple and np.isclose(adjusted, float(ratio), rtol=DIVIDENDS, atol=0.0) else 1.0


def remaining(broker: Broker, book: AccountBook, plan: RebalancePlan) -> dict[str, float]:
    """Shares by name that orders of other plans may still bring, or (negative) take."""
    waiting = [each.order for each in book.open_orders() if each.order.plan_id != plan.plan_id]
    filled, left = {fill.order_id: fill.quantity for fill in _parts(broker, waiting)}, dict[str, float]()
    for order in waiting:
        shares = order.quantity - filled.get(order.order_id, 0.0)
        left[order.symbol] = left.get(order.symbol, 0.0) + (shares if order.side == "buy" else -shares)
    return left


def cash_since(before: AccountState, activities: Sequence[CashActivity]) -> dict[CashKind, float]:
    """Account currency by kind that was booked since the last close, each activity once, corrections too."""
    known, booked = before.counted, dict[CashKind, float]({"flow": 0.0, "fee": 0.0, "income": 0.0})
    if known is not None:
        for each in activities:
            booked[each.kind] += each.amount - known.get(each.activity_id, 0.0)
    return booked


def units(before: AccountState, value: float, flow: float) -> tuple[float, float]:
    """Equity and capital of an account that is worth `value` after `flow` was paid in: a flow buys units at the close.

    Raises:
        ExecutionError: if more was paid in than there is.

    Source: Bacon (2008), Practical Portfolio Performance Measurement, time-weighted return with flows at the end.
    """
    if not value - flow > 0.0:
        raise ExecutionError(
            f"what is paid in must be a part of what is there, but {flow:.2f} was paid in since {before.session} and "
            f"the account is worth {value:.2f}; look at the account at the broker, and trade once its books agree"
        )
    return (value - flow) / before.capital, before.capital * (value / (value - flow))


def _parts(broker: Broker, waiting: Sequence[Order]) -> list[Fill]:
    """What is filled so far of orders that still wait."""
    ids = {order.order_id for order in waiting}
    plans = dict.fromkeys(order.plan_id for order in waiting)
    return [fill for plan_id in plans for fill in broker.fills(plan_id) if fill.order_id in ids]
