"""Document of an account: its activity between two days, compared with its back-test."""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import date

import polars as pl

from nvtrader_pipelines.components.document import Document, PartialDocument
from nvtrader_pipelines.desk.account_facts import AccountFacts, draw_account, find_backtest
from nvtrader_pipelines.desk.account_snapshot import format_finding
from nvtrader_pipelines.evaluation.short_samples import account_figures
from nvtrader_pipelines.evaluation.statistics import MIN_ANNUALIZED
from nvtrader_pipelines.execution.audit import EventKind
from nvtrader_pipelines.execution.book import AccountState
from nvtrader_pipelines.execution.plan_records import PlanRecord
from nvtrader_pipelines.storage.store import Store

ORDERS: Mapping[str, EventKind] = {"n_orders": "placed", "n_fills": "filled", "n_cancelled": "cancelled"}


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


def activity(store: Store, facts: AccountFacts, first: date | None = None, last: date | None = None) -> AccountActivity:
    """Activity of an account between two days, inclusive, or since its opening."""
    opening, *sessions = facts.states
    within = [state for state in sessions if (first or state.session) <= state.session <= (last or state.session)]
    before = [opening, *(state for state in sessions if first is not None and state.session < first)][-1]
    spans = (before.session, within[-1].session) if within else (before.session, before.session)
    end = min(spans[1], last or spans[1])  # which may be before the opening
    records = [record for record in facts.records.values() if spans[0] <= record.plan.session <= end]
    plans = {record.plan.plan_id for record in records}
    n_events = Counter(event.kind for event in facts.events if event.order_id and event.plan_id in plans)
    fields = {
        "account": facts.name,
        "policies": list(dict.fromkeys(f"{state.policy} of run {state.run_id}" for state in (within or [before]))),
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
        "kill_switch": facts.trading.halt_reason,
    }
    return AccountActivity.model_validate(fields)


def _figures(store: Store, states: Sequence[AccountState]) -> dict[str, float | None]:
    """Statistics of the sessions; annualized ones are null for a short sample."""
    if not states:
        return {}
    sessions = pl.DataFrame({name: [getattr(s, name) for s in states] for name in ("net_return", "turnover", "cost")})
    periods_per_year = 1  # without effect on a short sample
    if len(states) >= MIN_ANNUALIZED:
        source = store.ledger.run(states[-1].run_id).source
        periods_per_year = store.read_calendars().of(source).periods_per_year
    return account_figures(sessions, periods_per_year)


def _plan_counts(records: Sequence[PlanRecord]) -> dict[str, object]:
    """Counts of plans and findings, with the blocked and the waiting plans."""
    counts = Counter(f"{finding.level} {finding.rule}" for record in records for finding in record.findings)
    blocked = [
        BlockedPlan(
            plan_id=record.plan.plan_id,
            session=record.plan.session,
            findings=tuple(map(format_finding, record.findings)),
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


def trade_document(store: Store, account: str, days: tuple[date | None, date | None]) -> AccountActivity:
    """Activity of an account between two days, compared with its back-test, and their picture."""
    facts = AccountFacts.of(store, account)
    curve, document = facts.curve, activity(store, facts, *days)
    backtest, missing = find_backtest(store, facts)
    comparison = (
        NoBacktest(missing=missing)
        if backtest is None
        else _compare_to_backtest(curve, backtest, document.last_session)
    )
    picture = str(draw_account(store.home, facts, backtest)) if len(curve) > 1 else None
    return document.model_copy(update={"backtest": comparison, "picture": picture})


def _compare_to_backtest(curve: pl.DataFrame, backtest: pl.DataFrame, last: date) -> BacktestComparison | NoBacktest:
    """Equity of the back-test at the close of a session, and the largest difference up to it."""
    both = curve.join(backtest.select("session", backtest="equity"), on="session").sort("session")
    both = both.filter(both["session"] <= last)
    if both.is_empty():
        return NoBacktest(missing="no session of these days has been traded")
    return BacktestComparison(
        n_sessions=len(both),
        first_session=both["session"][0],
        last_session=both["session"][-1],
        equity=both["backtest"][-1],
        largest_difference=(both["equity"] - both["backtest"]).abs().to_numpy().max(),
    )
