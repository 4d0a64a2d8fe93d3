"""Positions of an account: what is held of each name, since when, and what it has gained."""

from collections.abc import Sequence
from datetime import date

from nvtrader_pipelines.components.document import Document
from nvtrader_pipelines.desk.account_facts import AccountFacts
from nvtrader_pipelines.execution.book import AccountState
from nvtrader_pipelines.execution.orders import Fill


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
    opening, last = facts.states[0], facts.states[-1]
    weights = dict(zip(last.symbols, last.weights, strict=True))
    accepted = [event.session for event in facts.events if event.kind == "accepted" and event.session]
    capped = [state.session for state in facts.states if state.cap_turnover]
    without_orders = max([opening.session, *accepted, *capped])  # last close at which holdings changed by no order
    rows = []
    for name, shares in sorted(last.shares.items(), key=lambda item: -weights[item[0]]):
        value, since = shares * last.prices[name], _held_since(facts.states, name)
        fills = [fill for fill in facts.fills if fill.symbol == name and fill.session >= since]
        is_bought = since > without_orders and any(fill.session == since for fill in fills)
        profit = value - _paid(fills) if is_bought else None
        facts_of_name = {"price": last.prices[name], "weight": weights[name], "since": since, "profit": profit}
        rows.append(Position(symbol=name, shares=shares, value=value, **facts_of_name))
    return tuple(rows)


def _held_since(states: Sequence[AccountState], name: str) -> date:
    """First of the last closes at which a name has been held without a break, on the same side."""
    since, is_short = states[-1].session, states[-1].shares[name] < 0.0
    for state in reversed(states):
        if name not in state.shares or (state.shares[name] < 0.0) != is_short:
            break
        since = state.session
    return since


def _paid(fills: Sequence[Fill]) -> float:
    """Account currency paid for purchases and fees, less what sales brought."""
    return sum((1.0 if fill.side == "buy" else -1.0) * fill.quantity * fill.price + fill.cost for fill in fills)
