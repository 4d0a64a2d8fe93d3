"""Document of an account's past: sessions, months, orders and plans since its opening."""

from collections.abc import Sequence
from datetime import date
from itertools import pairwise

import polars as pl

from nvtrader_pipelines.components.document import Document, frame_of
from nvtrader_pipelines.desk.account_access import read_account
from nvtrader_pipelines.desk.account_activity import AccountActivity, activity
from nvtrader_pipelines.desk.account_facts import AccountFacts
from nvtrader_pipelines.desk.portfolio_rows import OrderHistory, order_histories
from nvtrader_pipelines.execution.plan_records import PlanRecord, PlanStatus
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.tables import OUTCOMES


class AccountDay(Document):
    """Account at the close of a traded session."""

    session: date
    equity: float  # as a multiple of the opening
    value: float  # equity in account currency
    net_return: float
    profit: float  # account currency, without deposits and withdrawals
    drawdown: float  # positive fraction
    gross: float  # sum of absolute weights of names
    cash: float  # fraction of equity
    turnover: float  # one-way
    cost: float  # fraction of equity


class AccountMonth(Document):
    """Calendar month of an account."""

    month: str  # YYYY-MM
    n_sessions: int
    total_return: float
    profit: float  # account currency


class AccountOrder(Document):
    """Order with its fills."""

    session: date  # of the first fill, else of the order
    symbol: str
    side: str  # buy or sell
    quantity: float  # shares
    status: str
    filled_quantity: float
    price: float | None  # average of its fills, account currency; null before the first
    fees: float  # account currency
    slippage: float | None  # cost by price against the back-test's, a fraction of the traded value; null at a broker
    plan_id: str
    reason: str  # why it was cancelled


class AccountPlan(Document):
    """Plan with its decision, and what the decision brought."""

    plan_id: str
    session: date
    status: PlanStatus
    policy: str
    turnover: float  # one-way
    n_findings: int
    decided_by: str | None
    reason: str
    excess: float | None  # return of the decision less that of the other choice in five sessions; null if not known
    practice: bool  # whether it decided on a replay, whose outcome was known: the excess counts nowhere


class AccountHistory(Document):
    """Past of an account since its opening; newest first where it is a list of orders or plans."""

    account: str
    activity: AccountActivity | None  # figures since the opening; null before it
    days: tuple[AccountDay, ...]  # oldest first
    months: tuple[AccountMonth, ...]  # oldest first
    orders: tuple[AccountOrder, ...]
    plans: tuple[AccountPlan, ...]


def account_history(store: Store, name: str, facts: AccountFacts | None = None) -> AccountHistory:
    """Past of an account, from its facts if they have been read.

    Raises:
        StorageError: if there is no such account, or its book or the audit cannot be read.
        ExecutionError: if the book lacks events that the audit has.
    """
    spec, facts = read_account(store.home, name), facts or AccountFacts.of(store, name)
    days = _days(facts)
    return AccountHistory(
        account=name,
        activity=activity(store, facts) if facts.states else None,
        days=days,
        months=_months(days),
        orders=_orders(facts, is_live=spec.is_live),
        plans=_plans(store, facts),
    )


def account_orders(store: Store, name: str) -> tuple[AccountOrder, ...]:
    """Orders of an account since its opening, newest first.

    Raises:
        StorageError, ExecutionError: as `account_history`.
    """
    return _orders(AccountFacts.of(store, name), is_live=read_account(store.home, name).is_live)


def _days(facts: AccountFacts) -> tuple[AccountDay, ...]:
    return tuple(
        AccountDay.of(state, profit=state.profit_since(before), cash=state.weights[-1])
        for before, state in pairwise(facts.states)
    )


def _months(days: Sequence[AccountDay]) -> tuple[AccountMonth, ...]:
    if not days:
        return ()
    months = frame_of(days).group_by(pl.col("session").dt.strftime("%Y-%m").alias("month"), maintain_order=True)
    total_return = (1.0 + pl.col("net_return")).product() - 1.0
    rows = months.agg(n_sessions=pl.len(), total_return=total_return, profit=pl.sum("profit"))
    return tuple(AccountMonth(**row) for row in rows.iter_rows(named=True))


def _orders(facts: AccountFacts, *, is_live: bool) -> tuple[AccountOrder, ...]:
    rows = [_order(history, is_live=is_live) for history in order_histories(facts.events, facts.records)]
    return tuple(sorted(rows, key=lambda row: row.session, reverse=True))


def _order(history: OrderHistory, *, is_live: bool) -> AccountOrder:
    order, fills, quantity = history.order, history.fills, history.filled
    price = sum(fill.quantity * fill.price for fill in fills) / quantity if quantity else None
    against = 1.0 if order.side == "buy" else -1.0
    slippage = None if price is None or is_live else round(against * (price / order.quote - 1.0), 12) + 0.0
    return AccountOrder(
        session=fills[0].session if fills else order.session,
        symbol=order.symbol,
        side=order.side,
        quantity=order.quantity,
        status=history.status,
        filled_quantity=quantity,
        price=price,
        fees=sum(fill.cost for fill in fills),
        slippage=slippage,
        plan_id=order.plan_id,
        reason=history.reason,
    )


def _plans(store: Store, facts: AccountFacts) -> tuple[AccountPlan, ...]:
    rows = store.tables.read(OUTCOMES, {"account": [facts.name]}, ["plan_id", "excess_pct", "practice"])
    excess = {plan: pct / 100.0 for plan, pct, _ in rows.iter_rows() if pct is not None}
    practice = set(rows.filter("practice")["plan_id"])
    return tuple(
        _plan(record, excess.get(plan), practice=plan in practice) for plan, record in list(facts.records.items())[::-1]
    )


def _plan(record: PlanRecord, excess: float | None, *, practice: bool) -> AccountPlan:
    plan = record.plan
    names = ("status", "decided_by", "reason")
    decision = {name: getattr(record, name) for name in names}
    return AccountPlan.of(plan, **decision, n_findings=len(record.findings), excess=excess, practice=practice)
