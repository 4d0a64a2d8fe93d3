"""One session of an account after its close: orders, state, target weights, plan; each mirrored when it is done."""

import json
from collections.abc import Mapping
from functools import partial
from typing import Any

import dagster as dg
import polars as pl

from nvtrader_pipelines.desk.account_holds import hold_account
from nvtrader_pipelines.desk.desk import Desk
from nvtrader_pipelines.desk.rebalancing import reference_curves
from nvtrader_pipelines.figures import account_figures, plan_figures, stages_figures
from nvtrader_pipelines.orchestration.assets.active_policy import ACTIVE_POLICY_KEY
from nvtrader_pipelines.orchestration.progress import ProgressLog
from nvtrader_pipelines.orchestration.rebalancing import (
    SESSION,
    asked_again,
    cleared,
    executed,
    require_bars,
    require_passed,
    said_since,
)
from nvtrader_pipelines.orchestration.reports import keep_pictures, markdown_table, written
from nvtrader_pipelines.orchestration.resources import DeskResource
from nvtrader_pipelines.storage.kill_switch import FileKillSwitch
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
CHECKED = {  # checks that hold an account from when its rows are written until they pass
    ORDERS: ("no_nan",),
    PORTFOLIO_STATE: ("no_nan",),
    TARGET_WEIGHTS: ("weights_sum_to_one", "no_nan"),
    REBALANCE_PLAN: ("limits_hold", "no_nan"),
}
# One at a time, as the pool allows: a run by hand lacks the tag that holds back a second run of the job `rebalance`.
step_of_account = partial(dg.asset, group_name="portfolio", code_version="1", pool="account")


@step_of_account(
    key=ORDERS_KEY,
    kinds={"iceberg", "sqlite"},
    deps=[ACTIVE_POLICY_KEY, ["gold", "market_panel"]],
)
def orders(
    context: dg.AssetExecutionContext,
    store: dg.ResourceParam[Store],
    desk: DeskResource,
    progress: dg.ResourceParam[ProgressLog],
) -> dg.MaterializeResult:
    """What the plan that waited made of the session: orders from drifted holdings, sells first, each placed once."""
    require_passed(store.home, desk.account)
    trading = desk.of(store)
    require_bars(trading.store, context.run.tags.get(SESSION))
    executed(trading, progress.to(context), acknowledge=desk.acknowledge)
    events = said_since(trading, context.instance, context.run.run_id)
    trading.mirror()
    happened = pl.DataFrame(
        [(event.session, event.kind, event.symbol, event.reason) for event in events],
        ["session", "event", "symbol", "reason"],
        orient="row",
        infer_schema_length=None,
    )
    return told(trading, ORDERS, {"events": dg.MetadataValue.md(markdown_table(happened))})


@step_of_account(
    key=STATE_KEY,
    kinds={"iceberg", "sqlite"},
    deps=[ORDERS_KEY],
)
def portfolio_state(store: dg.ResourceParam[Store], desk: DeskResource) -> dg.MaterializeResult:
    """The account marked to the close, and its holdings against those of the broker's books."""
    trading = desk.of(store)
    with asked_again():
        trading.settle()
    trading.mirror()
    states = of_account(trading, PORTFOLIO_STATE)
    figures = account_figures(states, reference_curves(trading.store, states))
    pictures = keep_pictures(store.home, "portfolio_state", figures, desk.account)
    return told(trading, PORTFOLIO_STATE, {**pictures, **figures_of(states)})


@step_of_account(
    key=TARGET_KEY,
    kinds={"iceberg", "pytorch"},
    deps=[STATE_KEY],
)
def target_weights(store: dg.ResourceParam[Store], desk: DeskResource) -> dg.MaterializeResult:
    """What the active policy wants at the close, after each stage of the weight pipeline."""
    trading = desk.of(store)
    with asked_again():
        trading.propose()
    trading.mirror()
    figures = stages_figures(of_account(trading, TARGET_WEIGHTS))
    return told(trading, TARGET_WEIGHTS, keep_pictures(store.home, "target_weights", figures, desk.account))


@step_of_account(
    key=PLAN_KEY,
    kinds={"iceberg"},
    deps=[TARGET_KEY],
)
def rebalance_plan(store: dg.ResourceParam[Store], desk: DeskResource) -> dg.MaterializeResult:
    """The plan for the next session, with what compliance found: cleared, waiting for a person, or blocked."""
    trading = desk.of(store)
    cleared(trading, acknowledge=desk.acknowledge)
    trading.mirror()
    plans = of_account(trading, REBALANCE_PLAN)
    pictures = keep_pictures(store.home, "rebalance_plan", plan_figures(plans), desk.account)
    return told(trading, REBALANCE_PLAN, {**pictures, **compliance_findings(plans)})


def of_account(desk: Desk, table: Table) -> pl.DataFrame:
    """The account's rows, oldest session first."""
    return desk.store.tables.read(table, {"account": [desk.account]}).sort("session", maintain_order=True)


def told(desk: Desk, table: Table, extra: Mapping[str, Any]) -> dg.MaterializeResult:
    """Hold the account until the table's checks pass, and report its rows and the state of the kill switch."""
    for check in CHECKED[table]:
        hold_account(desk.store.home, desk.account, f"{table.name}.{check}")
    halted = FileKillSwitch(desk.store.home).halt_reason()
    switch = {"account": desk.account, "kill_switch": f"HALTED: {halted}" if halted else "not engaged"}
    return written(desk.store, table, len(of_account(desk, table)), {**switch, **extra})


def figures_of(states: pl.DataFrame) -> dict[str, float | str]:
    """The last session's figures, which the UI draws over the runs."""
    names = ("session", "equity", "value", "net_return", "drawdown", "turnover", "cash")
    last = states.select(names).tail(1).with_columns(pl.col("session").cast(pl.String))
    return {"sessions": len(states), **(last.row(0, named=True) if len(last) else {})}


def compliance_findings(plans: pl.DataFrame) -> dict[str, Any]:
    """The last plan's state and what compliance found."""
    if plans.is_empty():
        return {"status": "no plan was made yet"}
    plan = plans.row(-1, named=True)
    found = pl.DataFrame(
        json.loads(plan["findings"]), schema=["level", "rule", "symbol", "figure", "bound", "sentence"]
    )
    return {
        "plan": plan["plan_id"],
        "decided_at_close_of": str(plan["session"]),
        "status": plan["status"],
        "reason": plan["reason"] or "",
        "one_way_turnover": plan["turnover"],
        "findings": dg.MetadataValue.md(markdown_table(found)),
    }
