"""What is known of an account: where it stands, what happened on it, and the back-test of the same sessions."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any, Self

import numpy as np
import polars as pl

from nvtrader_pipelines.evaluation.account_statistics import cost_per_year, turnover_per_year
from nvtrader_pipelines.evaluation.statistics import max_drawdown, statistics_of, total_return
from nvtrader_pipelines.execution.audit import AuditEvent, EventKind
from nvtrader_pipelines.execution.book import AccountState
from nvtrader_pipelines.execution.journal import Journal
from nvtrader_pipelines.execution.plan_records import PlanRecord, plan_records
from nvtrader_pipelines.portfolio.cash import CASH
from nvtrader_pipelines.storage.account_book import SqliteBook
from nvtrader_pipelines.storage.kill_switch import FileKillSwitch
from nvtrader_pipelines.storage.store import Store

ORDERS: Mapping[str, EventKind] = {"n_orders": "placed", "n_fills": "filled", "n_cancelled": "cancelled"}
LAST = ("plan_id", "session", "policy", "run_id", "partition_key")  # of the last plan


@dataclass(frozen=True)
class AccountFacts:
    """An account's own book and its rows of the audit, read once."""

    name: str
    states: Sequence[AccountState]  # the opening first
    events: Sequence[AuditEvent]
    records: Mapping[str, PlanRecord]  # by plan, the oldest first
    stopped: str | None  # why the kill switch is engaged

    @classmethod
    def of(cls, store: Store, name: str) -> Self:
        """Read them.

        Raises:
            StorageError: if the book or the audit is damaged.
            ExecutionError: if the book is lost, or an older copy: it has not all that the audit tells of it.
        """
        book = SqliteBook(store.home, name)
        events = store.audit.events(name)
        Journal(store.audit, name).require_book_covers_audit(book.index())
        return cls(name, book.states(), events, plan_records(events), FileKillSwitch(store.home).halt_reason())

    @property
    def curve(self) -> pl.DataFrame:
        """A row per close, the opening first: session, equity, net_return, drawdown, turnover, cost, cash."""
        names = ("session", "equity", "net_return", "drawdown", "turnover", "cost")
        rows = [(*(getattr(state, name) for name in names), state.weights[-1]) for state in self.states]
        return pl.DataFrame(rows, schema=[*names, CASH], orient="row")


def standing(facts: AccountFacts) -> dict[str, Any]:
    """Where an account stands, as a document; an account that never opened has no session."""
    state = facts.states[-1] if facts.states else None
    *_, last = (None, *facts.records.values())
    return {
        "account": facts.name,
        "kill_switch": facts.stopped,
        **({} if state is None else _held(state) | {"accepted": _accepted(facts.events, state.session)}),
        "last_plan": None if last is None else _last_plan(last),
        "waiting": [plan_id for plan_id, record in facts.records.items() if record.status == "waiting"],
        "open_orders": sorted(order for record in facts.records.values() for order in record.placed - record.settled),
    }


def _held(state: AccountState) -> dict[str, Any]:
    weights = dict(zip(state.symbols, state.weights, strict=True))
    positions = [
        {
            "symbol": name,
            "shares": shares,
            "price": state.prices[name],
            "value": shares * state.prices[name],
            "weight": weights[name],
        }
        for name, shares in sorted(state.shares.items(), key=lambda item: -weights[item[0]])
    ]
    return {
        "session": state.session,
        "equity": state.equity,
        "value": state.value,
        "capital": state.capital,
        "net_return": state.net_return,
        "drawdown": state.drawdown,
        "cash": weights[CASH] * state.value,
        "cash_weight": weights[CASH],
        "policy": state.policy,
        "run_id": state.run_id,
        "positions": positions,
        "differences": list(state.differences),
    }


def _accepted(events: Sequence[AuditEvent], session: date) -> dict[str, str] | None:
    """Who took what the account holds otherwise than expected as it is, and why."""
    found = [event for event in events if event.kind == "accepted" and event.session == session]
    return {"by": found[-1].by, "reason": found[-1].reason} if found else None


def _last_plan(record: PlanRecord) -> dict[str, Any]:
    found = {name: getattr(record.plan, name) for name in LAST}
    return {**found, "status": record.status, "reason": record.reason, "findings": [_said(f) for f in record.findings]}


def _said(finding: Any) -> str:
    return f"{finding.level} {finding.rule}: {finding.sentence}"


def happened(facts: AccountFacts, first: date | None = None, last: date | None = None) -> dict[str, Any]:
    """What happened on an account from one day to another, both included, or since its opening, as a document."""
    opening, *sessions = facts.states
    within = [each for each in sessions if (first or each.session) <= each.session <= (last or each.session)]
    before = [opening, *(each for each in sessions if first is not None and each.session < first)][-1]
    spans = (before.session, within[-1].session) if within else (before.session, before.session)
    records = [record for record in facts.records.values() if spans[0] <= record.plan.session <= spans[1]]
    plans = {record.plan.plan_id for record in records}
    of_orders = Counter(event.kind for event in facts.events if event.order_id and event.plan_id in plans)
    return {
        "account": facts.name,
        "policies": list(dict.fromkeys(f"{each.policy} of run {each.run_id}" for each in (within or [before]))),
        "n_sessions": len(within),
        "first_session": within[0].session if within else None,
        "last_session": spans[1],
        "equity": (within or [before])[-1].equity,
        "value": (within or [before])[-1].value,
        **_figures(within),
        **_traded(records),
        **{name: of_orders[kind] for name, kind in ORDERS.items()},
        "differences": {str(state.session): list(state.differences) for state in within if state.differences},
        "kill_switch": facts.stopped,
    }


def _figures(states: Sequence[AccountState]) -> dict[str, float | None]:
    """What the sessions amount to; a figure that they do not have is null."""
    if not states:
        return {}
    returns, turnover, cost = (
        np.array([getattr(s, name) for s in states]) for name in ("net_return", "turnover", "cost")
    )
    return {
        "total_return": total_return(returns),
        "sharpe": statistics_of(returns)["sharpe"] if len(states) > 1 else None,
        "max_drawdown": max_drawdown(returns),
        "turnover_per_year": turnover_per_year(turnover),
        "cost_per_year": cost_per_year(cost),
    }


def _traded(records: Sequence[PlanRecord]) -> dict[str, Any]:
    """What became of the plans."""
    found = Counter(f"{finding.level} {finding.rule}" for record in records for finding in record.findings)
    blocked = [
        {
            "plan_id": record.plan.plan_id,
            "session": record.plan.session,
            "findings": [_said(f) for f in record.findings],
        }
        for record in records
        if record.status == "blocked"
    ]
    return {
        "n_plans": len(records),
        "plans": dict(Counter(record.status for record in records)),
        "findings": dict(found.most_common()),
        "blocked": blocked,
        "waiting": [record.plan.plan_id for record in records if record.status == "waiting"],
    }
