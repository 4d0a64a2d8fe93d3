"""Positions of an account: what is held of each name, since when, and what it has gained."""

from collections.abc import Sequence
from datetime import date

from nvtrader_pipelines.components.document import Document
from nvtrader_pipelines.desk.account_facts import AccountFacts
from nvtrader_pipelines.execution.book import AccountState
from nvtrader_pipelines.execution.orders import Fill, plan_id_of


class Position(Document):
    """Shares held of a name at a close."""

    symbol: str
    shares: float  # adjusted as the price is; negative if sold short
    price: float  # account currency, adjusted
    value: float
    weight: float  # of equity
    since: date  # first close since which it has been held
    profit: float | None  # value less what was paid since then, fees included; null if not every trade was an order


def positions(facts: AccountFacts) -> tuple[Position, ...]:
    """Positions at the last close of an opened account, largest weight first."""
    last = facts.states[-1]
    weights = dict(zip(last.symbols, last.weights, strict=True))
    accepted = [event.session for event in facts.events if event.kind == "accepted" and event.session]
    capped = [state.session for state in facts.states if state.cap_turnover]
    without_orders = max([facts.states[0].session, *accepted, *capped])  # last close with changes by no order
    rows = []
    for name, shares in sorted(last.shares.items(), key=lambda item: -weights[item[0]]):
        value, begin = shares * last.prices[name], _first_held(facts.states, name)
        since = facts.states[begin].session
        fills = _fills_since(facts, name, begin) if since > without_orders else []
        profit = value - _paid(fills) if fills else None
        facts_of_name = {"price": last.prices[name], "weight": weights[name], "since": since, "profit": profit}
        rows.append(Position(symbol=name, shares=shares, value=value, **facts_of_name))
    return tuple(rows)


def _first_held(states: Sequence[AccountState], name: str) -> int:
    """Position of the first of the last closes at which a name has been held without a break, on the same side."""
    begin, is_short = len(states) - 1, states[-1].shares[name] < 0.0
    while begin > 0 and name in states[begin - 1].shares and (states[begin - 1].shares[name] < 0.0) == is_short:
        begin -= 1
    return begin


def _fills_since(facts: AccountFacts, name: str, begin: int) -> Sequence[Fill]:
    """Fills of a name that were decided from the close before a position on; none if that close held the other side."""
    before = facts.states[begin - 1]
    if name in before.shares:
        return []
    decided = {plan_id: record.plan.session for plan_id, record in facts.records.items()}
    of_name = facts.fills_by_name.get(name, ())
    return [fill for fill in of_name if decided[plan_id_of(fill.order_id)] >= before.session]


def _paid(fills: Sequence[Fill]) -> float:
    """Account currency paid for purchases and fees, less what sales brought."""
    return sum((1.0 if fill.side == "buy" else -1.0) * fill.quantity * fill.price + fill.cost for fill in fills)
