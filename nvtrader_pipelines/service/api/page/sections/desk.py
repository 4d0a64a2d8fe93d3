"""Accounts, the kill switch, and the plans that wait for a person."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from pydantic import TypeAdapter

from nvtrader_pipelines.desk.account_access import account_names, read_account
from nvtrader_pipelines.evaluation.statistics import max_drawdown
from nvtrader_pipelines.execution.audit import AuditEvent
from nvtrader_pipelines.execution.book import AccountState
from nvtrader_pipelines.execution.errors import ExecutionError
from nvtrader_pipelines.execution.plan import RebalancePlan, weight_cuts
from nvtrader_pipelines.execution.plan_records import PlanRecord
from nvtrader_pipelines.promotion.active_policy import ActivePolicy, read_active
from nvtrader_pipelines.promotion.recency import eligibility_message
from nvtrader_pipelines.service.api.context import Context
from nvtrader_pipelines.service.api.page.content import Content, render
from nvtrader_pipelines.service.api.page.formats import position
from nvtrader_pipelines.service.documents.account_facts import AccountFacts
from nvtrader_pipelines.service.documents.plan_review import MonthlyRecord, plan_orders, read_monthly_record
from nvtrader_pipelines.storage.errors import StorageError

SPARK = (300, 32)  # pixels
N_SPARK = 150  # points
RECORD = TypeAdapter(MonthlyRecord | None)


@dataclass(frozen=True)
class Account:
    """Account as the page shows it."""

    name: str
    last: AccountState | None = None  # None before it is opened
    n_sessions: int = 0
    first: Any = None
    total_return: float | None = None
    largest_loss: float | None = None
    spark: str = ""  # path of an SVG
    waiting: tuple[PlanRecord, ...] = ()
    answers: tuple[AuditEvent, ...] = ()  # that judge nothing
    problem: str = ""  # why it cannot be read


def read_switch(shared: Context) -> Content:
    """Read the kill switch."""
    switch = shared.store.switch
    values = {"halt": switch.read(), "halted": switch.halt_reason()}
    return Content({name: render(name, **values) for name in ("switch", "band")})


def read_desk(shared: Context) -> Content:
    """Read all accounts."""
    problem, active, may_trade = "", None, ""
    try:
        active = read_active(shared.store)
        may_trade = eligibility_message(shared.store, active) if active else ""
    except StorageError as error:
        problem = str(error)
    names = filter(str.isprintable, account_names(shared.home))  # bytes that are no text cannot be shown
    accounts = [read_account_facts(shared, name) for name in names]
    waiting = [(account, record) for account in accounts for record in account.waiting]
    values: dict[str, Any] = {
        "accounts": accounts,
        "active": active,
        "problem": problem,
        "may_trade": may_trade,
        "halted": shared.store.switch.halt_reason(),
        "waiting": waiting,
        "plans": [plan_rows(shared, account, record, active) for account, record in waiting],
    }
    parts = {name: render(name, **values) for name in ("ticker", "trades", "waits", "plans")}
    return Content(parts, values={"waiting": str(len(waiting)) if waiting else ""})


def read_account_facts(shared: Context, name: str) -> Account:
    """Read an account; one that cannot be read has its reason."""
    try:
        read_account(shared.home, name)
        facts = AccountFacts.of(shared.store, name)
    except (StorageError, ExecutionError, ValueError) as error:
        return Account(name, problem=str(error))
    waiting = tuple(record for record in facts.records.values() if record.status == "waiting")
    if not facts.states:
        return Account(name, waiting=waiting)
    opening, *closes = facts.states
    returns = np.array([state.net_return for state in closes])
    return Account(
        name,
        last=facts.states[-1],
        n_sessions=len(closes),
        first=closes[0].session if closes else opening.session,
        total_return=facts.states[-1].equity - 1.0,
        largest_loss=max_drawdown(returns) if closes else 0.0,
        spark=spark([state.equity for state in facts.states]),
        waiting=waiting,
        answers=tuple(event for event in facts.events if event.kind in {"skipped", "equal"}),
    )


def spark(equity: Sequence[float]) -> str:
    """Path of an SVG through an equity curve, thinned."""
    values = [*equity[:: max(1, len(equity) // N_SPARK)], equity[-1]]
    low, high = min(values), max(values)
    if len(equity) < 2 or low == high:
        return ""
    (width, height), steps = SPARK, len(values) - 1
    places = (f"{i * width / steps:.1f} {height - position(v, low, high, height):.1f}" for i, v in enumerate(values))
    return "M" + "L".join(places)


def plan_rows(shared: Context, account: Account, record: PlanRecord, active: ActivePolicy | None) -> dict[str, Any]:
    """Rows of a plan: weights before and after, change, orders in shares and money, and the record of its policy."""
    plan, last = record.plan, account.last
    state = shared.store.book(account.name).at(plan.session)
    *names, cash = plan_orders(plan, state)
    changes = [order.change for order in names]
    return {
        "plan": plan,
        "account": account.name,
        "value": state.value if state else None,
        "findings": record.findings,
        "cuts": weight_cuts(plan),
        "answers": {event.kind: event.by for event in account.answers if event.plan_id == plan.plan_id},
        "rows": names,
        "cash": cash,
        "largest": max(map(abs, changes), default=0.0) or 1.0,
        "n_buys": sum(change > 0 for change in changes),
        "n_sells": sum(change < 0 for change in changes),
        "record": sealed_record(shared, plan),
        "decide_by": shared.store.calendar_of(plan.partition_key).decision_deadline(plan.session),
        "is_replay": bool(last and last.in_replay),
        "other_policy": active and (active.run_id, active.policy) != (plan.run_id, plan.policy) and active.policy,
    }


def sealed_record(shared: Context, plan: RebalancePlan) -> MonthlyRecord | str | None:
    """Record of a plan's policy, read once per plan; a sentence where the tables cannot be read."""
    key = ("monthly record", plan.plan_id)
    try:
        return RECORD.validate_json(
            shared.answers.keep(key, (), lambda: RECORD.dump_json(read_monthly_record(shared.store, plan)))
        )
    except StorageError as error:  # the plan can be decided on without it
        return str(error)
