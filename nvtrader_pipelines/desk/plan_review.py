"""Documents of a plan, also as a person reviews it: orders in money, and the record of its policy."""

from datetime import date, datetime
from typing import Any

import polars as pl

from nvtrader_pipelines.components.document import Document
from nvtrader_pipelines.evaluation.short_samples import sharpe_interval
from nvtrader_pipelines.evaluation.statistics import total_return
from nvtrader_pipelines.evaluation.verdict_tables import reported_period
from nvtrader_pipelines.execution.book import AccountState
from nvtrader_pipelines.execution.plan import Finding, RebalancePlan, WeightCut, weight_cuts
from nvtrader_pipelines.execution.plan_records import PlanRecord, PlanStatus
from nvtrader_pipelines.portfolio.cash import CASH
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.tables import EQUITY_CURVES, EVALUATIONS

N_MONTHS = 6


class PlanDocument(RebalancePlan):
    """Plan with its status, findings, decision and orders."""

    status: PlanStatus
    findings: tuple[Finding, ...]
    constructed_at: datetime
    constructed_by: str | None  # component, or the person who edited the parent
    cleared_at: datetime | None  # time of the compliance check
    decided_by: str | None
    decided_at: datetime | None
    reason: str  # of the last decision, block or cancellation
    placed: tuple[str, ...]  # orders at the broker
    settled: tuple[str, ...]  # of those, completely filled or cancelled
    cuts: tuple[WeightCut, ...]  # of weights that a person edited; the stages show those of a policy


class PlannedOrder(Document):
    """Change of a weight, in fractions of equity, in money and in shares; negative to sell."""

    symbol: str
    before: float  # weight held
    after: float  # target weight
    change: float
    amount: float | None  # account currency; null if the account has no value at the session
    price: float | None  # at the session; null if none is known
    shares: float | None


class RecordedMonth(Document):
    """Net returns of a policy and of a baseline in a calendar month, as far as the tests go."""

    month: str  # YYYY-MM
    policy_return: float
    baseline_return: float | None = None  # null if no baseline was run


class MonthlyRecord(Document):
    """Last months of a policy's tests up to a plan, beside its run's best baseline, net of costs."""

    baseline: str | None  # that of the run's verdict: the highest Sharpe ratio in the reported period
    first_session: date
    last_session: date  # of the plan, or the end of the tests
    months: tuple[RecordedMonth, ...]
    policy_return: float  # over all the months
    baseline_return: float | None = None
    policy_sharpe: float | None = None  # annualized, with a 95 % interval of Lo (2002); null for a short sample
    policy_sharpe_low: float | None = None
    policy_sharpe_high: float | None = None
    baseline_sharpe: float | None = None
    baseline_sharpe_low: float | None = None
    baseline_sharpe_high: float | None = None


class PlanReview(PlanDocument):
    """Plan with its orders in money, and the record of its policy."""

    orders: tuple[PlannedOrder, ...]  # largest change first, cash last
    record: MonthlyRecord | None  # null if the run has no verdict, as after it was deleted, or no test by then


def read_plan_review(store: Store, record: PlanRecord) -> PlanReview:
    """Describe a plan for a person who decides on it.

    Raises:
        StorageError: if the account's book or the tables cannot be read.
    """
    plan = record.plan
    orders = plan_orders(plan, store.book(plan.account).at(plan.session))
    return PlanReview(**dict(plan_document(record)), orders=orders, record=read_monthly_record(store, plan))


def plan_orders(plan: RebalancePlan, state: AccountState | None) -> tuple[PlannedOrder, ...]:
    """Orders of a plan, from the account's state at its session: largest change first, cash last."""
    value, prices = (state.value, state.prices) if state else (None, {})
    orders = []
    for symbol, before, after in zip(plan.symbols, plan.held, plan.target, strict=True):
        amount = None if value is None else (after - before) * value
        price = prices.get(symbol)
        shares = None if amount is None or price is None else amount / price
        weights = {"before": before, "after": after, "change": after - before}
        orders.append(PlannedOrder(symbol=symbol, **weights, amount=amount, price=price, shares=shares))
    return tuple(sorted(orders, key=lambda order: (order.symbol == CASH, -abs(order.change))))


def read_monthly_record(store: Store, plan: RebalancePlan) -> MonthlyRecord | None:
    """Read the last months of the tests of a plan's policy, up to the plan's session.

    None if its run has no verdict, or no test by then.
    """
    run = {"spec_hash": [plan.spec_hash], "run_id": [plan.run_id]}
    verdict = store.tables.read(EVALUATIONS, {**run, "policy": [plan.policy]}, ["period", "best_baseline"])
    if verdict.is_empty():
        return None
    baseline = verdict.filter(period=reported_period(verdict["period"]))["best_baseline"][0]
    accounts = {plan.policy: "policy"} | ({} if baseline is None else {baseline: "baseline"})
    curves = store.tables.read(
        EQUITY_CURVES, {**run, "policy": list(accounts)}, ["policy", "session", "net_return"]
    ).filter(pl.col("session") <= plan.session)
    if curves.is_empty():
        return None
    curves = curves.with_columns(pl.col("policy").replace(accounts), month=pl.col("session").dt.strftime("%Y-%m"))
    rows = curves.pivot("policy", index=["session", "month"], values="net_return").sort("session")
    rows = rows.filter(pl.col("month").is_in(rows["month"].unique().sort().tail(N_MONTHS).implode()))
    source = store.ledger.run(plan.run_id).source
    periods_per_year = store.read_calendars().of(source).periods_per_year
    return MonthlyRecord(
        baseline=baseline,
        first_session=rows["session"][0],
        last_session=rows["session"][-1],
        months=tuple(
            RecordedMonth(month=str(month), **_total_returns(within))
            for (month,), within in rows.group_by("month", maintain_order=True)
        ),
        **_total_returns(rows),
        **_sharpe_ratios(rows, periods_per_year),
    )


def _total_returns(rows: pl.DataFrame) -> dict[str, Any]:
    accounts = [name for name in ("policy", "baseline") if name in rows.columns]
    return {f"{name}_return": total_return(rows[name].to_numpy()) for name in accounts}


def _sharpe_ratios(rows: pl.DataFrame, periods_per_year: int) -> dict[str, Any]:
    accounts = [name for name in ("policy", "baseline") if name in rows.columns]
    figures = [sharpe_interval(f"{name}_sharpe", rows[name].to_numpy(), periods_per_year) for name in accounts]
    return {name: value for figure in figures for name, value in figure.items()}


def plan_document(record: PlanRecord) -> PlanDocument:
    """Describe a plan."""
    names = (
        "status",
        "findings",
        "constructed_at",
        "constructed_by",
        "cleared_at",
        "decided_by",
        "decided_at",
        "reason",
    )
    fields = {name: getattr(record, name) for name in names}
    orders = {"placed": sorted(record.placed), "settled": sorted(record.settled)}
    return PlanDocument.model_validate({**dict(record.plan), **fields, **orders, "cuts": weight_cuts(record.plan)})
