"""Documents of an account: its current state and its activity between two days."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any, Self

import numpy as np
import polars as pl

from nvtrader_pipelines.evaluation.account_statistics import cost_per_year, turnover_per_year
from nvtrader_pipelines.evaluation.statistics import MIN_ANNUALIZED, max_drawdown, statistics_of, total_return
from nvtrader_pipelines.execution.audit import AuditEvent, EventKind
from nvtrader_pipelines.execution.book import AccountState
from nvtrader_pipelines.execution.journal import Journal
from nvtrader_pipelines.execution.plan_records import PlanRecord, halted_session_events, plan_records
from nvtrader_pipelines.portfolio.cash import CASH
from nvtrader_pipelines.storage.account_book import SqliteBook
from nvtrader_pipelines.storage.kill_switch import FileKillSwitch
from nvtrader_pipelines.storage.store import Store

ORDERS: Mapping[str, EventKind] = {"n_orders": "placed", "n_fills": "filled", "n_cancelled": "cancelled"}
LAST_PLAN_FIELDS = ("plan_id", "session", "policy", "run_id", "partition_key")


@dataclass(frozen=True)
class AccountFacts:
    """States and audit events of an account, read once."""

    name: str
    states: Sequence[AccountState]  # opening first
    events: Sequence[AuditEvent]
    records: Mapping[str, PlanRecord]  # by plan id, oldest first
    halt_reason: str | None  # why the kill switch is engaged; None if it is not

    @classmethod
    def of(cls, store: Store, name: str) -> Self:
        """Read the book, the audit and the kill switch.

        Raises:
            StorageError: if the book or the audit is damaged.
            ExecutionError: if the book lacks events that the audit has: it is missing or an older copy.
        """
        book = SqliteBook(store.home, name)
        events = store.audit.events(name)
        Journal(store.audit, name).require_book_covers_audit(book.index())
        return cls(name, book.states(), events, plan_records(events), FileKillSwitch(store.home).halt_reason())

    @property
    def halted_sessions(self) -> list[date]:
        """Sessions that the kill switch left without a plan, whether or not a decision was due."""
        return [each.session for each in halted_session_events(self.events, self.records.values()) if each.session]

    @property
    def curve(self) -> pl.DataFrame:
        """Rows per close, opening first: equity, net return, drawdown, turnover, cost and cash."""
        names = ("session", "equity", "net_return", "drawdown", "turnover", "cost")
        rows = [(*(getattr(state, name) for name in names), state.weights[-1]) for state in self.states]
        return pl.DataFrame(rows, schema=[*names, CASH], orient="row")


def snapshot(facts: AccountFacts) -> dict[str, Any]:
    """Current state of an account as a document; an unopened account has no session."""
    state = facts.states[-1] if facts.states else None
    *_, last = (None, *facts.records.values())
    return {
        "account": facts.name,
        "kill_switch": facts.halt_reason,
        **({} if state is None else _holdings(state) | {"accepted": _acceptance(facts.events, state.session)}),
        "halted": facts.halted_sessions,
        "last_plan": None if last is None else _last_plan(last),
        "waiting": [plan_id for plan_id, record in facts.records.items() if record.status == "waiting"],
        "open_orders": sorted(order for record in facts.records.values() for order in record.placed - record.settled),
    }


def _holdings(state: AccountState) -> dict[str, Any]:
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


def _acceptance(events: Sequence[AuditEvent], session: date) -> dict[str, str] | None:
    """Person and reason of the accepted differences of a session; None if there are none."""
    accepted = [event for event in events if event.kind == "accepted" and event.session == session]
    return {"by": accepted[-1].by, "reason": accepted[-1].reason} if accepted else None


def _last_plan(record: PlanRecord) -> dict[str, Any]:
    found = {name: getattr(record.plan, name) for name in LAST_PLAN_FIELDS}
    return {
        **found,
        "status": record.status,
        "reason": record.reason,
        "findings": [_format_finding(f) for f in record.findings],
    }


def _format_finding(finding: Any) -> str:
    return f"{finding.level} {finding.rule}: {finding.sentence}"


def activity(facts: AccountFacts, first: date | None = None, last: date | None = None) -> dict[str, Any]:
    """Activity of an account between two days, inclusive, or since its opening, as a document."""
    opening, *sessions = facts.states
    within = [each for each in sessions if (first or each.session) <= each.session <= (last or each.session)]
    before = [opening, *(each for each in sessions if first is not None and each.session < first)][-1]
    spans = (before.session, within[-1].session) if within else (before.session, before.session)
    end = min(spans[1], last or spans[1])  # which may be before the opening
    records = [record for record in facts.records.values() if spans[0] <= record.plan.session <= end]
    plans = {record.plan.plan_id for record in records}
    n_events = Counter(event.kind for event in facts.events if event.order_id and event.plan_id in plans)
    return {
        "account": facts.name,
        "policies": list(dict.fromkeys(f"{each.policy} of run {each.run_id}" for each in (within or [before]))),
        "n_sessions": len(within),
        "first_session": within[0].session if within else None,
        "last_session": spans[1],
        "equity": (within or [before])[-1].equity,
        "value": (within or [before])[-1].value,
        **_figures(within),
        **_plan_counts(records),
        **{name: n_events[kind] for name, kind in ORDERS.items()},
        "differences": {str(state.session): list(state.differences) for state in within if state.differences},
        "halted": [session for session in facts.halted_sessions if spans[0] < session <= spans[1]],
        "kill_switch": facts.halt_reason,
    }


def _figures(states: Sequence[AccountState]) -> dict[str, float | None]:
    """Statistics of the sessions; annualized ones are null for a short sample."""
    if not states:
        return {}
    returns, turnover, cost = (
        np.array([getattr(s, name) for s in states]) for name in ("net_return", "turnover", "cost")
    )
    is_long = len(states) >= MIN_ANNUALIZED
    return {
        "total_return": total_return(returns),
        "sharpe": statistics_of(returns)["sharpe"] if is_long else None,
        "max_drawdown": max_drawdown(returns),
        "turnover_per_year": turnover_per_year(turnover) if is_long else None,
        "cost_per_year": cost_per_year(cost) if is_long else None,
    }


def _plan_counts(records: Sequence[PlanRecord]) -> dict[str, Any]:
    """Counts of plans and findings, with the blocked and the waiting plans."""
    found = Counter(f"{finding.level} {finding.rule}" for record in records for finding in record.findings)
    blocked = [
        {
            "plan_id": record.plan.plan_id,
            "session": record.plan.session,
            "findings": [_format_finding(f) for f in record.findings],
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
