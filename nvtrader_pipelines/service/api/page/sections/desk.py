"""Accounts, the kill switch, the plans that wait for a person, and what to do next."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from pydantic import TypeAdapter

from nvtrader_pipelines.desk.account_access import account_names, read_account
from nvtrader_pipelines.desk.account_activity import AccountActivity, activity
from nvtrader_pipelines.desk.account_facts import AccountFacts
from nvtrader_pipelines.desk.plan_review import MonthlyRecord, plan_orders, read_monthly_record
from nvtrader_pipelines.desk.traded_policy import read_traded
from nvtrader_pipelines.execution.book import AccountState
from nvtrader_pipelines.execution.errors import ExecutionError
from nvtrader_pipelines.execution.plan import RebalancePlan, weight_cuts
from nvtrader_pipelines.execution.plan_records import PlanRecord, is_first_plan
from nvtrader_pipelines.notifications.home_status import read_home_status
from nvtrader_pipelines.promotion.active_policy import ActivePolicy
from nvtrader_pipelines.promotion.recency import eligibility_message
from nvtrader_pipelines.service.api.context import Context
from nvtrader_pipelines.service.api.page.content import Content, render
from nvtrader_pipelines.service.page_templates import position
from nvtrader_pipelines.storage.errors import StorageError

SPARK = (300, 32)  # pixels
N_SPARK = 150  # points
ANSWERS = {"skipped", "equal"}  # that judge nothing
RECORD = TypeAdapter(MonthlyRecord | None)


@dataclass(frozen=True)
class PageAccount:
    """Account as the page shows it."""

    name: str
    facts: AccountFacts | None = None  # None if it cannot be read
    activity: AccountActivity | None = None  # since its opening; None before it
    problem: str = ""  # why it cannot be read
    active: ActivePolicy | None = None  # that trades it
    policy_problem: str = ""  # why its policy cannot be read

    @property
    def last(self) -> AccountState | None:
        """State at the last close; None before it is opened."""
        return self.facts.states[-1] if self.facts and self.facts.states else None

    @property
    def halted(self) -> str | None:
        """Why no order of the account is placed; None if orders are, or it cannot be read."""
        return self.facts.trading.halt_reason if self.facts else None

    @property
    def waiting(self) -> list[PlanRecord]:
        """Plans that wait for a person."""
        return self.facts.waiting if self.facts else []

    @property
    def spark(self) -> str:
        """Path of an SVG through the equity curve."""
        return spark([state.equity for state in self.facts.states]) if self.facts and self.facts.states else ""


def read_switch(shared: Context) -> Content:
    """Read the kill switch."""
    switch = shared.store.switch
    values = {"halt": switch.read(), "trading": switch.state()}
    return Content({name: render(name, **values) for name in ("switch", "band")})


def read_next_step(shared: Context) -> Content:
    """Read what helps most now."""
    return Content({"next": render("next", step=read_home_status(shared.store, datetime.now(UTC)).next_step)})


def read_desk(shared: Context) -> Content:
    """Read all accounts."""
    names = filter(str.isprintable, account_names(shared.home))  # bytes that are no text cannot be shown
    accounts = [read_account_on_page(shared, name) for name in names]
    waiting = [(account, record) for account in accounts for record in account.waiting]
    policies = {(a.active.sha256, a.active.policy): a.active for a in accounts if a.active}  # each is read once
    values: dict[str, Any] = {
        "accounts": accounts,
        "may_trade": {key: may_trade(shared, active) for key, active in policies.items()},
        "halted": shared.store.switch.halt_reason(),
        "waiting": waiting,
        "plans": [plan_rows(shared, account, record) for account, record in waiting],
    }
    parts = {name: render(name, **values) for name in ("ticker", "trades", "waits", "plans")}
    return Content(parts, values={"waiting": str(len(waiting)) if waiting else ""})


def may_trade(shared: Context, active: ActivePolicy) -> str:
    """Describe until when a policy may begin to trade, or why it may not."""
    try:
        return eligibility_message(shared.store, active)
    except StorageError as error:  # the calendar of its market
        return f"not at all: {error}"


def read_account_on_page(shared: Context, name: str) -> PageAccount:
    """Read an account and the policy that trades it; what cannot be read has its reason."""
    try:
        policy: dict[str, Any] = {"active": read_traded(shared.store, name)}
    except StorageError as error:
        policy = {"policy_problem": str(error)}
    try:
        read_account(shared.home, name)
        facts = AccountFacts.of(shared.store, name)
        return PageAccount(name, facts, activity(shared.store, facts) if facts.states else None, **policy)
    except (StorageError, ExecutionError, ValueError) as error:
        return PageAccount(name, problem=str(error), **policy)


def spark(equity: Sequence[float]) -> str:
    """Path of an SVG through an equity curve, thinned."""
    values = [*equity[:: max(1, len(equity) // N_SPARK)], equity[-1]]
    low, high = min(values), max(values)
    if len(equity) < 2 or low == high:
        return ""
    (width, height), steps = SPARK, len(values) - 1
    places = (f"{i * width / steps:.1f} {height - position(v, low, high, height):.1f}" for i, v in enumerate(values))
    return "M" + "L".join(places)


def plan_rows(shared: Context, account: PageAccount, record: PlanRecord) -> dict[str, Any]:
    """Rows of a plan: weights before and after, change, orders in shares and money, and the record of its policy."""
    plan, last, active = record.plan, account.last, account.active
    state = shared.store.book(account.name).at(plan.session)
    events = account.facts.events if account.facts else ()
    answers = {event.kind: event.by for event in events if event.plan_id == plan.plan_id and event.kind in ANSWERS}
    *names, cash = plan_orders(plan, state)
    changes = [order.change for order in names]
    return {
        "plan": plan,
        "account": account.name,
        "halted": account.halted,
        "value": state.value if state else None,
        "findings": record.findings,
        "cuts": weight_cuts(plan),
        "answers": answers,
        "rows": names,
        "cash": cash,
        "largest": max(map(abs, changes), default=0.0) or 1.0,
        "n_buys": sum(change > 0 for change in changes),
        "n_sells": sum(change < 0 for change in changes),
        "record": sealed_record(shared, plan),
        "decide_by": shared.store.calendar_of(plan.partition_key).decision_deadline(plan.session),
        "is_replay": bool(last and last.in_replay),
        "is_first": is_first_plan(plan, account.facts.records.values() if account.facts else ()),
        "other_policy": active and (active.run_id, active.policy) != (plan.run_id, plan.policy) and active.policy,
    }


def sealed_record(shared: Context, plan: RebalancePlan) -> MonthlyRecord | str | None:
    """Record of a plan's policy, read once per plan; a sentence where the tables cannot be read."""
    key = ("monthly record", plan.plan_id)
    try:
        return RECORD.validate_json(
            shared.answers.keep(key, lambda: RECORD.dump_json(read_monthly_record(shared.store, plan)), is_final=True)
        )
    except StorageError as error:  # the plan can be decided on without it
        return str(error)
