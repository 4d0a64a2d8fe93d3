"""Checks of what an account wants, holds and has done; each that does not pass stops the run, and the next ones."""

from collections.abc import Callable

import dagster as dg
import polars as pl

from nvtrader_pipelines.desk.desk import Desk
from nvtrader_pipelines.desk.row_checks import EVERY_ACCOUNT, hold, release
from nvtrader_pipelines.execution.compliance import tightest_limits
from nvtrader_pipelines.execution.invariants import invalid_stage_sums, limit_breaches, missing_numbers
from nvtrader_pipelines.execution.plan_records import PLACEABLE
from nvtrader_pipelines.orchestration.assets.portfolio import STATE_KEY, of_account
from nvtrader_pipelines.orchestration.checks import verdict
from nvtrader_pipelines.orchestration.reports import asset_key
from nvtrader_pipelines.orchestration.resources import DeskResource
from nvtrader_pipelines.storage.compliance_files import read_limits
from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.tables import ORDERS, PORTFOLIO_STATE, REBALANCE_PLAN, TARGET_WEIGHTS, Table

MAY_BE_TRADED = {"waiting", *PLACEABLE}  # not blocked, and not all of its orders have ended
NUMBERS = {
    ORDERS: ("quantity", "quote", "target_weight", "filled_quantity"),
    PORTFOLIO_STATE: ("equity", "value", "net_return", "drawdown", "turnover", "cost", "cash", "weights"),
    TARGET_WEIGHTS: ("weight", "change"),
    REBALANCE_PLAN: ("turnover", "held_weights", "target_weights"),
}


def account_check(
    table: Table, name: str, broken: Callable[[Desk, pl.DataFrame], pl.DataFrame], description: str
) -> dg.AssetChecksDefinition:
    """A blocking check of the rows of one account, which is held until it passes."""

    @dg.asset_check(asset=asset_key(table), name=name, blocking=True, description=description)
    def check(store: dg.ResourceParam[Store], desk: DeskResource) -> dg.AssetCheckResult:
        hold(store.home, desk.account, f"{table.name}.{name}")
        trading = desk.of(store)
        rows = of_account(trading, table)
        found = verdict(broken(trading, rows), len(rows))
        if found.passed:
            release(store.home, desk.account, f"{table.name}.{name}")
        return dg.AssetCheckResult(passed=found.passed, metadata={**(found.metadata or {}), "account": desk.account})

    return check


def no_nan(table: Table) -> dg.AssetChecksDefinition:
    """A blocking check that every number of an account's rows is one; tables keep NaN as null."""
    return account_check(
        table,
        "no_nan",
        lambda _, rows: missing_numbers(rows, *NUMBERS[table]),
        f"Every number of {table.name} is known and finite.",
    )


def outside_limits(desk: Desk, plans: pl.DataFrame) -> pl.DataFrame:
    """Plans that may still be traded beyond the tighter of their spec's limits and of the desk's.

    It comes after compliance, which blocks such plans without stopping the run: one that is found was let through, and
    a person rejects it; what waits at a broker `nvtrader halt` cancels, and `nvtrader trade` then brings the rows up to
    date. Plans before were made under the limits of their time.
    """
    target_weights = of_account(desk, TARGET_WEIGHTS)
    ledger, of_desk = desk.store.ledger, read_limits(desk.store.home)
    found = [limit_breaches(target_weights.clear(), of_desk)]
    alive = plans.filter(pl.col("status").is_in(MAY_BE_TRADED))
    for (key,), version in alive.partition_by("partition_key", as_dict=True).items():
        limits = tightest_limits(ledger.read(str(key)).pipeline.risk_limits, of_desk)
        found.append(limit_breaches(target_weights.join(version, on="plan_id", how="semi"), limits))
    return pl.concat(found)


@dg.asset_check(
    asset=STATE_KEY,
    blocking=True,
    description="The account holds what was held before each session and what was filled, or a person accepted it.",
)
def reconciliation(store: dg.ResourceParam[Store], desk: DeskResource) -> dg.AssetCheckResult:
    """By the desk's own rule, which holds the account wherever it is traded from; so no run asks for this check."""
    found = desk.of(store).open_differences()
    metadata = {"account": desk.account, "differences": dg.MetadataValue.md("  \n".join(found))}
    return dg.AssetCheckResult(passed=not found, metadata=metadata)


@dg.asset_check(
    asset=asset_key(ORDERS),
    blocking=True,
    description="Every row of the audit is what was appended, and follows from the row before.",
)
def audit_is_whole(store: dg.ResourceParam[Store]) -> dg.AssetCheckResult:
    """Reads the whole audit again; it is of all accounts, and holds all of them where it does not pass."""
    try:
        state = store.audit.verify()
    except StorageError as error:
        hold(store.home, EVERY_ACCOUNT, "audit_is_whole")
        return dg.AssetCheckResult(passed=False, description=str(error))
    release(store.home, EVERY_ACCOUNT, "audit_is_whole")
    return dg.AssetCheckResult(passed=True, metadata={"rows": state.n_rows, "chain": state.chain})


PORTFOLIO_CHECKS = [
    audit_is_whole,
    *(no_nan(table) for table in NUMBERS),
    reconciliation,
    account_check(
        REBALANCE_PLAN,
        "limits_hold",
        outside_limits,
        "What may still be traded is within the limits in force: the tighter of the spec's and of the desk's.",
    ),
    account_check(
        TARGET_WEIGHTS,
        "weights_sum_to_one",
        lambda _, rows: invalid_stage_sums(rows),
        "Weights after every stage are not negative and sum to one.",
    ),
]
