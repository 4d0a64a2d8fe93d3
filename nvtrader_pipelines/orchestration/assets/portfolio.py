"""Rebalance of an account after a close: orders, state, target weights and the next plan."""

import json
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import dagster as dg
import polars as pl

from nvtrader_pipelines.desk.account_checks import read_account_rows
from nvtrader_pipelines.desk.desk import Desk
from nvtrader_pipelines.desk.rebalancing import reference_curves
from nvtrader_pipelines.execution.audit import AuditEvent
from nvtrader_pipelines.figures import account_figures, plan_figures, stages_figures
from nvtrader_pipelines.orchestration.assets.active_policy import ACTIVE_POLICY_KEY
from nvtrader_pipelines.orchestration.progress_log import ProgressLog
from nvtrader_pipelines.orchestration.rebalance_steps import (
    BOT,
    SESSION,
    audit_events_since,
    clear_plan,
    execute_due_sessions,
    require_checks_passed,
    require_same_bot,
    retry_when_unavailable,
    wait_for_bars,
)
from nvtrader_pipelines.orchestration.reports import markdown_table, store_pictures, table_result
from nvtrader_pipelines.orchestration.resources import DeskResource
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.tables import (
    ORDERS,
    PORTFOLIO_STATE,
    REBALANCE_PLAN,
    TARGET_WEIGHTS,
    Table,
)

ORDERS_KEY = dg.AssetKey(["portfolio", "orders"])
STATE_KEY = dg.AssetKey(["portfolio", "portfolio_state"])
TARGET_KEY = dg.AssetKey(["portfolio", "target_weights"])
PLAN_KEY = dg.AssetKey(["portfolio", "rebalance_plan"])
# The pool admits one step at a time: a run started by hand lacks the tag that limits runs of `rebalance`.
account_asset = partial(dg.asset, group_name="portfolio", code_version="1", pool="account")


@account_asset(key=ORDERS_KEY, kinds={"iceberg", "sqlite"}, deps=[ACTIVE_POLICY_KEY, ["gold", "market_panel"]])
def orders(
    context: dg.AssetExecutionContext,
    store: dg.ResourceParam[Store],
    desk: DeskResource,
    progress: dg.ResourceParam[ProgressLog],
) -> dg.MaterializeResult:
    """Orders of the previous plan, from drifted holdings, sells first, each placed once."""
    trading = desk.of(store)
    require_same_bot(store, desk.account, context.run.tags.get(BOT))
    require_checks_passed(trading)
    wait_for_bars(store, desk.account, context.run.tags.get(SESSION))
    execute_due_sessions(trading, progress.reporter(context), acknowledge=desk.acknowledges(store))
    events = audit_events_since(trading, context.instance, context.run.run_id)
    trading.mirror()
    return account_result(trading, ORDERS, {"events": dg.MetadataValue.md(markdown_table(event_rows(events)))})


@account_asset(key=STATE_KEY, kinds={"iceberg", "sqlite"}, deps=[ORDERS_KEY])
def portfolio_state(store: dg.ResourceParam[Store], desk: DeskResource) -> dg.MaterializeResult:
    """Account valued at the close and reconciled with the broker's books."""
    trading = desk.of(store)
    with retry_when_unavailable():
        trading.settle()
    trading.mirror()
    states = read_account_rows(trading, PORTFOLIO_STATE)
    figures = account_figures(states, reference_curves(trading.store, states))
    pictures = store_pictures(store.home, "portfolio_state", figures, desk.account)
    return account_result(trading, PORTFOLIO_STATE, {**pictures, **latest_state_metadata(states)})


@account_asset(key=TARGET_KEY, kinds={"iceberg", "pytorch"}, deps=[STATE_KEY])
def target_weights(store: dg.ResourceParam[Store], desk: DeskResource) -> dg.MaterializeResult:
    """Weights of the active policy at the close after each stage of the weight pipeline."""
    trading = desk.of(store)
    with retry_when_unavailable():
        trading.propose()
    trading.mirror()
    figures = stages_figures(read_account_rows(trading, TARGET_WEIGHTS))
    return account_result(trading, TARGET_WEIGHTS, store_pictures(store.home, "target_weights", figures, desk.account))


@account_asset(key=PLAN_KEY, kinds={"iceberg"}, deps=[TARGET_KEY])
def rebalance_plan(store: dg.ResourceParam[Store], desk: DeskResource) -> dg.MaterializeResult:
    """Plan for the next session with its compliance findings and status."""
    trading = desk.of(store)
    clear_plan(trading, acknowledge=desk.acknowledges(store))
    trading.mirror()
    plans = read_account_rows(trading, REBALANCE_PLAN)
    pictures = store_pictures(store.home, "rebalance_plan", plan_figures(plans), desk.account)
    return account_result(trading, REBALANCE_PLAN, {**pictures, **plan_metadata(plans)})


def event_rows(events: Sequence[AuditEvent]) -> pl.DataFrame:
    """Tabulate audit events."""
    return pl.DataFrame(
        [(event.session, event.kind, event.symbol, event.reason) for event in events],
        ["session", "event", "symbol", "reason"],
        orient="row",
        infer_schema_length=None,
    )


def account_result(desk: Desk, table: Table, extra: Mapping[str, Any]) -> dg.MaterializeResult:
    """Report the rows of the account, and whether trading is stopped."""
    halted = desk.store.switch_of(desk.account).halt_reason()
    switch = {"account": desk.account, "kill_switch": f"HALTED: {halted}" if halted else "not engaged"}
    return table_result(desk.store, table, len(read_account_rows(desk, table)), {**switch, **extra})


def latest_state_metadata(states: pl.DataFrame) -> dict[str, float | str]:
    """Figures of the last session, which the UI plots over materializations."""
    names = ("session", "equity", "value", "net_return", "drawdown", "turnover", "cash")
    last = states.select(names).tail(1).with_columns(pl.col("session").cast(pl.String))
    return {"sessions": len(states), **(last.row(0, named=True) if len(last) else {})}


def plan_metadata(plans: pl.DataFrame) -> dict[str, Any]:
    """Status of the last plan and its compliance findings."""
    if plans.is_empty():
        return {"status": "no plan yet"}
    plan = plans.row(-1, named=True)
    counts = pl.DataFrame(
        json.loads(plan["findings"]), schema=["level", "rule", "symbol", "figure", "bound", "sentence"]
    )
    return {
        "plan": plan["plan_id"],
        "decided_at_close_of": str(plan["session"]),
        "status": plan["status"],
        "reason": plan["reason"] or "",
        "one_way_turnover": plan["turnover"],
        "findings": dg.MetadataValue.md(markdown_table(counts)),
    }
