"""Blocking checks of an account's tables; the next rebalance repeats them before it trades."""

import dagster as dg

from nvtrader_pipelines.desk.account_checks import ACCOUNT_CHECKS, AccountCheck, read_account_rows
from nvtrader_pipelines.orchestration.assets.portfolio import STATE_KEY
from nvtrader_pipelines.orchestration.reports import asset_key
from nvtrader_pipelines.orchestration.resources import DeskResource
from nvtrader_pipelines.orchestration.table_checks import check_result
from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.tables import ORDERS


def account_check(condition: AccountCheck) -> dg.AssetChecksDefinition:
    """Build a blocking check of one account's rows."""

    @dg.asset_check(
        asset=asset_key(condition.table), name=condition.name, blocking=True, description=condition.description
    )
    def check(store: dg.ResourceParam[Store], desk: DeskResource) -> dg.AssetCheckResult:
        trading = desk.of(store)
        rows = read_account_rows(trading, condition.table)
        result = check_result(condition.violations(trading, rows), len(rows))
        return dg.AssetCheckResult(passed=result.passed, metadata={**(result.metadata or {}), "account": desk.account})

    return check


@dg.asset_check(
    asset=STATE_KEY,
    blocking=True,
    description="Holdings equal those before the session plus its fills, or a person accepted the differences.",
)
def reconciliation(store: dg.ResourceParam[Store], desk: DeskResource) -> dg.AssetCheckResult:
    """Report the desk's own reconciliation, whose differences stop the account everywhere."""
    differences = desk.of(store).open_differences()
    metadata = {"account": desk.account, "differences": dg.MetadataValue.md("  \n".join(differences))}
    return dg.AssetCheckResult(passed=not differences, metadata=metadata)


@dg.asset_check(
    asset=asset_key(ORDERS),
    blocking=True,
    description="The hash chain of the audit is intact: no row was changed, inserted or deleted.",
)
def audit_is_whole(store: dg.ResourceParam[Store]) -> dg.AssetCheckResult:
    """Verify the whole audit, which all accounts share; while it fails, none of them is traded."""
    try:
        state = store.audit.verify()
    except StorageError as error:
        return dg.AssetCheckResult(passed=False, description=str(error))
    return dg.AssetCheckResult(passed=True, metadata={"rows": state.n_rows, "chain": state.chain})


PORTFOLIO_CHECKS = [audit_is_whole, reconciliation, *(account_check(check) for check in ACCOUNT_CHECKS)]
