"""Document of an account: its current state."""

from collections.abc import Sequence
from datetime import date

from nvtrader_pipelines.components.document import Document, PartialDocument
from nvtrader_pipelines.desk.account_access import read_account
from nvtrader_pipelines.desk.account_facts import AccountFacts
from nvtrader_pipelines.desk.positions import Position, positions
from nvtrader_pipelines.desk.traded_policy import read_traded
from nvtrader_pipelines.execution.audit import AuditEvent, TradingState
from nvtrader_pipelines.execution.plan import Finding
from nvtrader_pipelines.execution.plan_records import PlanRecord, PlanStatus
from nvtrader_pipelines.promotion.active_policy import ActivePolicy
from nvtrader_pipelines.promotion.recency import eligibility_message
from nvtrader_pipelines.promotion.rounds import newer_run_message
from nvtrader_pipelines.storage.store import Store


class ActivePolicyFacts(Document):
    """Policy that trades."""

    policy: str
    run_id: str
    may_trade: str  # until when it may begin to, or why it may not
    newer: str | None  # message on a newer run of its experiment


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
    currency: str  # of the account
    active_policy: ActivePolicyFacts | None
    account: str
    kill_switch: str | None  # why it is engaged
    trading: TradingState
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


def account_snapshot(store: Store, name: str, facts: AccountFacts | None = None) -> AccountSnapshot:
    """Current state of an account, from its facts if they have been read.

    Raises:
        StorageError: if the account does not exist, or its book, the audit or the active policy cannot be read.
        ExecutionError: if the book lacks events that the audit has.
    """
    spec, active = read_account(store.home, name), read_traded(store, name)
    facts = facts or AccountFacts.of(store, name)
    *_, last = (None, *facts.records.values())
    fields = {
        "kind": spec.kind,
        "currency": spec.currency,
        "active_policy": active and _active_policy(store, active),
        "account": facts.name,
        "kill_switch": facts.trading.halt_reason,
        **(_holdings(facts) if facts.states else {}),
        "trading": facts.trading,
        "halted": facts.halted_sessions,
        "last_plan": last and _last_plan(last),
        "waiting": [record.plan.plan_id for record in facts.waiting],
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
    names = ("session", "equity", "value", "ruin", "capital", "net_return", "drawdown", "gross", "gross_before_cap")
    names += ("financing", "policy", "run_id", "differences")
    return {
        **{name: getattr(state, name) for name in names},
        "cash": state.weights[-1] * state.value,
        "cash_weight": state.weights[-1],
        "positions": positions(facts),
        "accepted": _acceptance(facts.events, state.session),
    }


def _acceptance(events: Sequence[AuditEvent], session: date) -> Acceptance | None:
    """Person and reason of the accepted differences of a session; None if there are none."""
    accepted = [event for event in events if event.kind == "accepted" and event.session == session]
    return Acceptance(by=accepted[-1].by, reason=accepted[-1].reason) if accepted else None


def _last_plan(record: PlanRecord) -> LastPlan:
    findings = tuple(map(format_finding, record.findings))
    return LastPlan.of(record.plan, status=record.status, reason=record.reason, findings=findings)


def format_finding(finding: Finding) -> str:
    """Level, rule and sentence of a finding."""
    return f"{finding.level} {finding.rule}: {finding.sentence}"
