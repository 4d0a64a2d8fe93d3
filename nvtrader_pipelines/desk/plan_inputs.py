"""Inputs of a plan, compared with the current ones before a person decides on it."""

from dataclasses import replace

import polars as pl

from nvtrader_pipelines.desk.traded_market import require_active
from nvtrader_pipelines.execution.book import AccountState
from nvtrader_pipelines.execution.plan import RebalancePlan
from nvtrader_pipelines.execution.plan_decision import DecisionEvent
from nvtrader_pipelines.execution.stale_plans import (
    RETURN_COLUMNS,
    PlanChanges,
    StalePlan,
    changed_holdings,
    revised_symbols,
)
from nvtrader_pipelines.storage.panels import pinned_snapshots
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.tables import RETURNS


def require_unchanged_inputs(
    store: Store, plan: RebalancePlan, decision: DecisionEvent, state: AccountState, *, trades: bool
) -> None:
    """Raise if an input of the plan changed that the decision relies on.

    What trades, an approval or edited weights, relies on the active policy, the holdings and the prices of the plan's
    session; an override that keeps the holdings on these; the others on nothing.

    Raises:
        StalePlan: with the changes.
        StorageError: if no policy is active, or the plan's snapshot of the prices has expired.
    """
    if not trades and decision != "overridden":
        return
    changes = PlanChanges(holdings=changed_holdings(plan, state))
    if trades:
        active = require_active(store, plan.account).ref
        policy = None if active == (plan.run_id, plan.policy) else active
        changes = replace(changes, policy=policy, revised=_revised_symbols(store, plan))
    if changes != PlanChanges():
        raise StalePlan(plan, decision, changes)


def _revised_symbols(store: Store, plan: RebalancePlan) -> tuple[str, ...]:
    """Symbols of a plan whose prices were corrected; nothing is read while its snapshot is the pinned one."""
    source = store.ledger.read(plan.partition_key).market.source
    snapshots = [ids[RETURNS.name] for ids in (plan.snapshot_ids, pinned_snapshots(store.tables, source))]
    if snapshots[0] == snapshots[1]:
        return ()
    where = {"source": [source], "year": [plan.session.year], "symbol": plan.symbols}
    columns = ["symbol", "session", *RETURN_COLUMNS]
    then, now = (
        store.tables.read(RETURNS, where, columns, snapshot).filter(pl.col("session") == plan.session)
        for snapshot in snapshots
    )
    return revised_symbols(then, now)
