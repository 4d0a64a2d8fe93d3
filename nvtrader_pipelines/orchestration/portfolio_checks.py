"""Blocking checks of an account's tables; each puts the account on hold until it passes."""

from collections.abc import Callable

import dagster as dg
import polars as pl

from nvtrader_pipelines.desk.account_holds import EVERY_ACCOUNT, hold_account, release_account
from nvtrader_pipelines.desk.desk import Desk
from nvtrader_pipelines.execution.compliance import tightest_limits
from nvtrader_pipelines.execution.invariants import invalid_stage_sums, limit_breaches, missing_numbers
from nvtrader_pipelines.execution.plan_records import PLACEABLE
from nvtrader_pipelines.orchestration.assets.portfolio import STATE_KEY, read_account_rows
from nvtrader_pipelines.orchestration.reports import asset_key
from nvtrader_pipelines.orchestration.resources import DeskResource
from nvtrader_pipelines.orchestration.table_checks import check_result
from nvtrader_pipelines.storage.compliance_files import read_limits
from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.tables import ORDERS, PORTFOLIO_STATE, REBALANCE_PLAN, TARGET_WEIGHTS, Table

TRADABLE_STATUSES = {"waiting", *PLACEABLE}  # not blocked, and with orders that may still be placed or filled
NUMBERS = {
    ORDERS: ("quantity", "quote", "target_weight", "filled_quantity"),
    PORTFOLIO_STATE: ("equity", "value", "net_return", "drawdown", "turnover", "cost", "cash", "weights"),
    TARGET_WEIGHTS: ("weight", "change"),
    REBALANCE_PLAN: ("turnover", "held_weights", "target_weights"),
}


def account_check(
    table: Table, name: str, broken: Callable[[Desk, pl.DataFrame], pl.DataFrame], description: str
) -> dg.AssetChecksDefinition:
    """Build a blocking check of one account's rows; the account is on hold until it passes."""

    @dg.asset_check(asset=asset_key(table), name=name, blocking=True, description=description)
    def check(store: dg.ResourceParam[Store], desk: DeskResource) -> dg.AssetCheckResult:
        hold_account(store.home, desk.account, f"{table.name}.{name}")
        trading = desk.of(store)
        rows = read_account_rows(trading, table)
        found = check_result(broken(trading, rows), len(rows))
        if found.passed:
            release_account(store.home, desk.account, f"{table.name}.{name}")
        return dg.AssetCheckResult(passed=found.passed, metadata={**(found.metadata or {}), "account": desk.account})

    return check


def no_nan(table: Table) -> dg.AssetChecksDefinition:
    """Build a blocking check that no number of an account is null; tables store NaN as null."""
    return account_check(
        table,
        "no_nan",
        lambda _, rows: missing_numbers(rows, *NUMBERS[table]),
        f"Every number in {table.name} is known and finite.",
    )


def outside_limits(desk: Desk, plans: pl.DataFrame) -> pl.DataFrame:
    """Target weights of tradable plans beyond the tighter of spec and desk limits.

    Compliance blocks such plans beforehand without ending the run, so a plan found here slipped through: reject it,
    cancel its open orders with `nvtrader halt`, then update the rows with `nvtrader trade`. Ended plans are not
    checked: other limits were in force.
    """
    target_weights = read_account_rows(desk, TARGET_WEIGHTS)
    ledger, desk_limits = desk.store.ledger, read_limits(desk.store.home)
    found = [limit_breaches(target_weights.clear(), desk_limits)]
    tradable = plans.filter(pl.col("status").is_in(TRADABLE_STATUSES))
    for (key,), version in tradable.partition_by("partition_key", as_dict=True).items():
        limits = tightest_limits(ledger.read(str(key)).pipeline.risk_limits, desk_limits)
        found.append(limit_breaches(target_weights.join(version, on="plan_id", how="semi"), limits))
    return pl.concat(found)


@dg.asset_check(
    asset=STATE_KEY,
    blocking=True,
    description="Holdings equal those before the session plus its fills, or a person accepted the differences.",
)
def reconciliation(store: dg.ResourceParam[Store], desk: DeskResource) -> dg.AssetCheckResult:
    """Report the desk's own reconciliation, which stops the account wherever it is traded from."""
    found = desk.of(store).open_differences()
    metadata = {"account": desk.account, "differences": dg.MetadataValue.md("  \n".join(found))}
    return dg.AssetCheckResult(passed=not found, metadata=metadata)


@dg.asset_check(
    asset=asset_key(ORDERS),
    blocking=True,
    description="The hash chain of the audit is intact: no row was changed, inserted or deleted.",
)
def audit_is_whole(store: dg.ResourceParam[Store]) -> dg.AssetCheckResult:
    """Verify the whole audit, which all accounts share; a failure puts all of them on hold."""
    try:
        state = store.audit.verify()
    except StorageError as error:
        hold_account(store.home, EVERY_ACCOUNT, "audit_is_whole")
        return dg.AssetCheckResult(passed=False, description=str(error))
    release_account(store.home, EVERY_ACCOUNT, "audit_is_whole")
    return dg.AssetCheckResult(passed=True, metadata={"rows": state.n_rows, "chain": state.chain})


PORTFOLIO_CHECKS = [
    audit_is_whole,
    *(no_nan(table) for table in NUMBERS),
    reconciliation,
    account_check(
        REBALANCE_PLAN,
        "limits_hold",
        outside_limits,
        "Tradable plans are within the limits in force: the tighter of the spec's and the desk's.",
    ),
    account_check(
        TARGET_WEIGHTS,
        "weights_sum_to_one",
        lambda _, rows: invalid_stage_sums(rows),
        "Weights after every stage are non-negative and sum to one.",
    ),
]
