"""Documents of an account: its current state and its activity between two days."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Self

import numpy as np
import polars as pl

from nvtrader_pipelines.desk.account_access import read_account
from nvtrader_pipelines.evaluation.account_statistics import cost_per_year, turnover_per_year
from nvtrader_pipelines.evaluation.statistics import MIN_ANNUALIZED, max_drawdown, total_return
from nvtrader_pipelines.execution.audit import AuditEvent, EventKind
from nvtrader_pipelines.execution.book import AccountState
from nvtrader_pipelines.execution.journal import Journal
from nvtrader_pipelines.execution.plan import Finding
from nvtrader_pipelines.execution.plan_records import PlanRecord, PlanStatus, halted_session_events, plan_records
from nvtrader_pipelines.portfolio.cash import CASH
from nvtrader_pipelines.promotion.active_policy import ActivePolicy, read_active
from nvtrader_pipelines.promotion.recency import eligibility_message
from nvtrader_pipelines.promotion.rounds import newer_run_message
from nvtrader_pipelines.service.documents.document import Document, PartialDocument
from nvtrader_pipelines.service.documents.short_samples import sharpe_interval
from nvtrader_pipelines.storage.store import Store

ORDERS: Mapping[str, EventKind] = {"n_orders": "placed", "n_fills": "filled", "n_cancelled": "cancelled"}


class ActivePolicyFacts(Document):
    """Policy that trades."""

    policy: str
    run_id: str
    may_trade: str  # until when it may begin to, or why it may not
    newer: str | None  # message on a newer run of its experiment


class Position(Document):
    """Shares held of a name at a close."""

    symbol: str
    shares: float
    price: float  # account currency, adjusted
    value: float
    weight: float  # of equity


class Acceptance(Document):
    """Person and reason of accepted differences."""

    by: str
    reason: str


class LastPlan(Document):
    """Newest plan of an account."""

    plan_id: str
    session: date
    policy: str
    run_id: str
    partition_key: str
    status: PlanStatus
    reason: str
    findings: tuple[str, ...]


class AccountSnapshot(PartialDocument):
    """Current state of an account; the fields with defaults are set once it is opened."""

    kind: str  # simulated, or a broker's
    active_policy: ActivePolicyFacts | None
    account: str
    kill_switch: str | None  # why it is engaged
    session: date | None = None  # of the last close
    equity: float = 1.0  # as a multiple of the opening
    value: float | None = None  # equity in account currency
    capital: float | None = None  # account currency per unit of equity
    ruin: str | None = None  # that the account lost everything; empty if it has not
    net_return: float | None = None  # over the session
    drawdown: float | None = None
    cash: float | None = None  # account currency
    cash_weight: float | None = None
    gross: float | None = None  # sum of absolute weights of names
    gross_before_cap: float | None = None  # before the cap at the close; None of a long-only account
    financing: float | None = None  # paid in the session, a fraction of equity
    policy: str | None = None  # in force at that close
    run_id: str | None = None
    positions: tuple[Position, ...] = ()  # largest weight first
    differences: tuple[str, ...] = ()  # from the expected holdings
    accepted: Acceptance | None = None
    halted: tuple[date, ...]  # sessions that the kill switch left without a plan
    last_plan: LastPlan | None
    waiting: tuple[str, ...]  # ids of plans
    open_orders: tuple[str, ...]


class BlockedPlan(Document):
    """Plan that a hard finding blocked."""

    plan_id: str
    session: date
    findings: tuple[str, ...]


class BacktestComparison(Document):
    """Back-test of an account over its sessions up to the last of the activity."""

    n_sessions: int
    first_session: date
    last_session: date
    equity: float  # as a multiple of the opening
    largest_difference: float  # of equity, at any close


class NoBacktest(Document):
    """Reason why an account has no back-test."""

    missing: str


class AccountActivity(PartialDocument):
    """Activity of an account between two days; figures are set if a session was traded.

    Annualized figures are null for a short sample.
    """

    account: str
    policies: tuple[str, ...]
    n_sessions: int
    first_session: date | None
    last_session: date  # the opening if no session was traded
    equity: float  # as a multiple of the opening
    value: float  # equity in account currency
    ruin: str  # that the account lost everything by then; empty if it has not
    total_return: float | None = None
    sharpe: float | None = None
    sharpe_low: float | None = None  # 95 % interval of Lo (2002)
    sharpe_high: float | None = None
    max_drawdown: float | None = None
    turnover_per_year: float | None = None
    cost_per_year: float | None = None
    n_plans: int
    plans: dict[str, int]  # by status
    findings: dict[str, int]  # by level and rule
    blocked: tuple[BlockedPlan, ...]
    waiting: tuple[str, ...]  # ids of plans
    n_orders: int
    n_fills: int
    n_cancelled: int
    differences: dict[date, tuple[str, ...]]  # from the expected holdings, by session
    halted: tuple[date, ...]  # sessions that the kill switch left without a plan
    kill_switch: str | None  # why it is engaged
    backtest: BacktestComparison | NoBacktest | None = None  # set after trading
    picture: str | None = None  # path; set after trading
    stopped: str | None = None  # why trading ended early; set if it did


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
        book = store.book(name)
        events = store.audit.events(name)
        Journal(store.audit, name).require_book_covers_audit(book.index())
        return cls(name, book.states(), events, plan_records(events), store.switch.halt_reason())

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


def account_snapshot(store: Store, name: str) -> AccountSnapshot:
    """Current state of an account.

    Raises:
        StorageError: if the account does not exist, or its book, the audit or the active policy cannot be read.
        ExecutionError: if the book lacks events that the audit has.
    """
    kind, active = read_account(store.home, name).kind, read_active(store)
    facts = AccountFacts.of(store, name)
    *_, last = (None, *facts.records.values())
    fields = {
        "kind": kind,
        "active_policy": active and _active_policy(store, active),
        "account": facts.name,
        "kill_switch": facts.halt_reason,
        **(_holdings(facts) if facts.states else {}),
        "halted": facts.halted_sessions,
        "last_plan": last and _last_plan(last),
        "waiting": [plan_id for plan_id, record in facts.records.items() if record.status == "waiting"],
        "open_orders": sorted(order for record in facts.records.values() for order in record.placed - record.settled),
    }
    return AccountSnapshot.model_validate(fields)


def _active_policy(store: Store, active: ActivePolicy) -> ActivePolicyFacts:
    return ActivePolicyFacts(
        policy=active.policy,
        run_id=active.run_id,
        may_trade=eligibility_message(store, active),
        newer=newer_run_message(store, active),
    )


def _holdings(facts: AccountFacts) -> dict[str, object]:
    """Fields of an opened account."""
    state = facts.states[-1]
    weights = dict(zip(state.symbols, state.weights, strict=True))
    names = ("session", "equity", "value", "ruin", "capital", "net_return", "drawdown", "gross", "gross_before_cap")
    names += ("financing", "policy", "run_id", "differences")
    positions = [
        Position(
            symbol=name,
            shares=shares,
            price=state.prices[name],
            value=shares * state.prices[name],
            weight=weights[name],
        )
        for name, shares in sorted(state.shares.items(), key=lambda item: -weights[item[0]])
    ]
    return {
        **{name: getattr(state, name) for name in names},
        "cash": weights[CASH] * state.value,
        "cash_weight": weights[CASH],
        "positions": positions,
        "accepted": _acceptance(facts.events, state.session),
    }


def _acceptance(events: Sequence[AuditEvent], session: date) -> Acceptance | None:
    """Person and reason of the accepted differences of a session; None if there are none."""
    accepted = [event for event in events if event.kind == "accepted" and event.session == session]
    return Acceptance(by=accepted[-1].by, reason=accepted[-1].reason) if accepted else None


def _last_plan(record: PlanRecord) -> LastPlan:
    plan = record.plan
    return LastPlan(
        plan_id=plan.plan_id,
        session=plan.session,
        policy=plan.policy,
        run_id=plan.run_id,
        partition_key=plan.partition_key,
        status=record.status,
        reason=record.reason,
        findings=tuple(map(_format_finding, record.findings)),
    )


def _format_finding(finding: Finding) -> str:
    return f"{finding.level} {finding.rule}: {finding.sentence}"


def activity(store: Store, facts: AccountFacts, first: date | None = None, last: date | None = None) -> AccountActivity:
    """Activity of an account between two days, inclusive, or since its opening."""
    opening, *sessions = facts.states
    within = [each for each in sessions if (first or each.session) <= each.session <= (last or each.session)]
    before = [opening, *(each for each in sessions if first is not None and each.session < first)][-1]
    spans = (before.session, within[-1].session) if within else (before.session, before.session)
    end = min(spans[1], last or spans[1])  # which may be before the opening
    records = [record for record in facts.records.values() if spans[0] <= record.plan.session <= end]
    plans = {record.plan.plan_id for record in records}
    n_events = Counter(event.kind for event in facts.events if event.order_id and event.plan_id in plans)
    fields = {
        "account": facts.name,
        "policies": list(dict.fromkeys(f"{each.policy} of run {each.run_id}" for each in (within or [before]))),
        "n_sessions": len(within),
        "first_session": within[0].session if within else None,
        "last_session": spans[1],
        "equity": (within or [before])[-1].equity,
        "value": (within or [before])[-1].value,
        "ruin": (within or [before])[-1].ruin,
        **_figures(store, within),
        **_plan_counts(records),
        **{name: n_events[kind] for name, kind in ORDERS.items()},
        "differences": {state.session: state.differences for state in within if state.differences},
        "halted": [session for session in facts.halted_sessions if spans[0] < session <= spans[1]],
        "kill_switch": facts.halt_reason,
    }
    return AccountActivity.model_validate(fields)


def _figures(store: Store, states: Sequence[AccountState]) -> dict[str, float | None]:
    """Statistics of the sessions; annualized ones are null for a short sample."""
    if not states:
        return {}
    returns, turnover, cost = (
        np.array([getattr(s, name) for s in states]) for name in ("net_return", "turnover", "cost")
    )
    whole: dict[str, float | None] = {"total_return": total_return(returns), "max_drawdown": max_drawdown(returns)}
    if len(states) < MIN_ANNUALIZED:
        return whole | dict.fromkeys(("sharpe", "sharpe_low", "sharpe_high", "turnover_per_year", "cost_per_year"))
    source = store.ledger.run(states[-1].run_id).source
    periods_per_year = store.read_calendars().of(source).periods_per_year
    return whole | {
        **sharpe_interval("sharpe", returns, periods_per_year),
        "turnover_per_year": turnover_per_year(turnover, periods_per_year),
        "cost_per_year": cost_per_year(cost, periods_per_year),
    }


def _plan_counts(records: Sequence[PlanRecord]) -> dict[str, object]:
    """Counts of plans and findings, with the blocked and the waiting plans."""
    counts = Counter(f"{finding.level} {finding.rule}" for record in records for finding in record.findings)
    blocked = [
        BlockedPlan(
            plan_id=record.plan.plan_id,
            session=record.plan.session,
            findings=tuple(map(_format_finding, record.findings)),
        )
        for record in records
        if record.status == "blocked"
    ]
    return {
        "n_plans": len(records),
        "plans": dict(Counter(record.status for record in records)),
        "findings": dict(counts.most_common()),
        "blocked": blocked,
        "waiting": [record.plan.plan_id for record in records if record.status == "waiting"],
    }
