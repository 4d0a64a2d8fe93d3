"""Checks of an account's rows: a scheduled rebalance trades it only while all of them pass."""

from collections.abc import Callable
from dataclasses import dataclass

import polars as pl

from nvtrader_pipelines.desk.desk import Desk
from nvtrader_pipelines.execution.compliance import tightest_limits
from nvtrader_pipelines.execution.invariants import invalid_stage_sums, limit_breaches, missing_numbers
from nvtrader_pipelines.execution.plan_records import PLACEABLE
from nvtrader_pipelines.storage.compliance_files import read_limits
from nvtrader_pipelines.storage.tables import ORDERS, PORTFOLIO_STATE, REBALANCE_PLAN, TARGET_WEIGHTS, Table

TRADABLE_STATUSES = {"waiting", *PLACEABLE}  # not blocked, and with orders that may still be placed or filled
NUMBERS = {
    ORDERS: ("quantity", "quote", "target_weight", "filled_quantity"),
    PORTFOLIO_STATE: ("equity", "value", "net_return", "drawdown", "turnover", "cost", "cash", "weights"),
    TARGET_WEIGHTS: ("weight", "change"),
    REBALANCE_PLAN: ("turnover", "held_weights", "target_weights"),
}


@dataclass(frozen=True)
class AccountCheck:
    """Condition that an account's rows of a table must meet."""

    table: Table
    name: str
    description: str
    violations: Callable[[Desk, pl.DataFrame], pl.DataFrame]  # of the account's rows, those that break it


def failing_checks(desk: Desk) -> list[str]:
    """Update the account's rows and name the checks that they fail.

    Raises:
        StorageError: if the audit or the account's book is damaged.
    """
    desk.store.audit.verify()
    desk.mirror()
    return [
        f"{check.table.name}.{check.name}"
        for check in ROW_CHECKS
        if len(check.violations(desk, read_account_rows(desk, check.table)))
    ]


def read_account_rows(desk: Desk, table: Table) -> pl.DataFrame:
    """Read the rows of an account, oldest session first."""
    return desk.store.tables.read(table, {"account": [desk.account]}).sort("session", maintain_order=True)


def outside_limits(desk: Desk, plans: pl.DataFrame) -> pl.DataFrame:
    """Target weights of tradable plans beyond the tighter of spec and desk limits.

    Compliance blocks such plans beforehand without ending the run, so a plan found here slipped through, or limits
    were tightened since: reject it, and cancel its open orders with `nvtrader halt`. Ended plans are not checked:
    other limits were in force.
    """
    target_weights = read_account_rows(desk, TARGET_WEIGHTS)
    ledger, desk_limits = desk.store.ledger, read_limits(desk.store.home)
    breaches = [limit_breaches(target_weights.clear(), desk_limits)]
    tradable = plans.filter(pl.col("status").is_in(TRADABLE_STATUSES))
    for (key,), version in tradable.partition_by("partition_key", as_dict=True).items():
        limits = tightest_limits(ledger.read(str(key)).pipeline.risk_limits, desk_limits)
        breaches.append(limit_breaches(target_weights.join(version, on="plan_id", how="semi"), limits))
    return pl.concat(breaches)


def _levered_plans(desk: Desk) -> list[str]:
    """Ids of plans whose policies may sell short or borrow."""
    plans, levered = read_account_rows(desk, REBALANCE_PLAN), list[str]()
    for (key,), version in plans.partition_by("partition_key", as_dict=True).items():
        if desk.store.ledger.read(str(key)).environment.is_levered:
            levered += version["plan_id"].to_list()
    return levered


def _no_nan(table: Table) -> AccountCheck:
    """Condition that no number is null; tables store NaN as null."""
    return AccountCheck(
        table,
        "no_nan",
        f"Every number in {table.name} is known and finite.",
        lambda _, rows: missing_numbers(rows, *NUMBERS[table]),
    )


ROW_CHECKS = (
    *(_no_nan(table) for table in NUMBERS),
    AccountCheck(
        TARGET_WEIGHTS,
        "weights_sum_to_one",
        "Weights after every stage sum to one, and are non-negative in plans of long-only policies.",
        lambda desk, rows: invalid_stage_sums(rows, _levered_plans(desk)),
    ),
)
ACCOUNT_CHECKS = (
    *ROW_CHECKS,
    AccountCheck(  # not asked before trading: the desk cancels the orders of a plan that its limits now block
        REBALANCE_PLAN,
        "limits_hold",
        "Tradable plans are within the limits in force: the tighter of the spec's and the desk's.",
        outside_limits,
    ),
)
