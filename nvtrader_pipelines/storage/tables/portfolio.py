"""Plans, orders, fills, states and activations, mirrored from the audit and the books."""

import polars as pl

from nvtrader_pipelines.components.columns import UTC_TIME, Column, TableSchema
from nvtrader_pipelines.evaluation.account_tables import ACTION_LOG, EQUITY
from nvtrader_pipelines.evaluation.verdict_tables import RUN
from nvtrader_pipelines.market.tables import BAR
from nvtrader_pipelines.storage.table import Table
from nvtrader_pipelines.storage.tables.rl import RUNS

_POLICY = TableSchema(
    Column("policy", pl.String, "name that the policy's account had in the evaluation"),
    Column("run_id", pl.String, "run that trained the policy, 16 hexadecimal digits"),
    RUN.only("spec_hash"),
)
_SNAPSHOT_IDS = Column("snapshot_ids", pl.String, "JSON of table to snapshot id of the panel behind the decision")
_PARTITION_KEY = Column("partition_key", pl.String, "version of the experiment, name@hash8")
_ACTOR = Column("by", pl.String, "person or component that acted")
_PLAN_KEYS = TableSchema(
    Column("account", pl.String, "name of the account"),
    BAR.only("year"),
    Column("session", pl.Date, "session of the market; of plans and weights, of the close they decided at"),
    Column("plan_id", pl.String, "identity of the plan, 16 hexadecimal digits"),
    _POLICY,
    _SNAPSHOT_IDS,
)
_ORDER_TERMS = TableSchema(
    Column("symbol", pl.String, "ticker"),
    Column("side", pl.String, "buy or sell"),
    Column("quantity", pl.Float64, "number of shares, positive"),
)
_BY_YEAR = ("account", "year")
_REBALANCE_PLAN = TableSchema(
    _PLAN_KEYS,
    _PARTITION_KEY,
    Column("parent_id", pl.String, "plan that a person edited into this one; null of a plan of the policy"),
    Column("fold", pl.Int32, "walk-forward fold whose policies decided"),
    Column("seeds", pl.List(pl.Int32), "random seeds of those policies"),
    ACTION_LOG.only("symbols"),
    Column("held_weights", pl.List(pl.Float64), "weights at the close of the decision"),
    ACTION_LOG.only("target_weights"),
    Column("turnover", pl.Float64, "one-way: half the sum of absolute changes from held to target, cash included"),
    Column("truncated", pl.Boolean, "whether a limit that reports truncation cut the weights"),
    Column(
        "status",
        pl.String,
        "constructed, blocked, waiting, cleared, approved, overridden, rejected, cancelled, placed, filled",
    ),
    Column("n_hard", pl.Int64, "number of findings that block the plan"),
    Column("n_soft", pl.Int64, "number of findings that wait for a person"),
    Column("n_warn", pl.Int64, "number of findings that are only recorded"),
    Column("findings", pl.String, "JSON list of findings: rule, level, symbol, figure, bound and sentence"),
    Column("reason", pl.String, "reason of the last decision, block or cancellation"),
    Column("decided_by", pl.String, "person who approved, overrode or rejected it; null without a decision"),
    Column("constructed_at", UTC_TIME, "when it was constructed"),
    Column("cleared_at", UTC_TIME, "when compliance checked it"),
    Column("decided_at", UTC_TIME, "when it was approved, overridden or rejected"),
)
REBALANCE_PLAN = Table("portfolio", "rebalance_plan", _REBALANCE_PLAN, _BY_YEAR)
_TARGET_WEIGHTS = TableSchema(
    _PLAN_KEYS,
    Column("step", pl.Int32, "number of the stage: 0 is the policy's proposal, the last one is traded"),
    Column("stage", pl.String, "policy, or the kind of the selector, allocator, timing or limits"),
    Column("symbol", pl.String, "ticker, or cash"),
    Column("weight", pl.Float64, "weight after the stage"),
    Column("change", pl.Float64, "weight less that of the previous stage; for the proposal, less the held weight"),
    Column("reason", pl.String, "what the stage changed and why; empty where it changed nothing"),
)
TARGET_WEIGHTS = Table("portfolio", "target_weights", _TARGET_WEIGHTS, _BY_YEAR)
_ORDERS = TableSchema(
    _PLAN_KEYS,
    Column("order_id", pl.String, "made of plan and symbol, so that a retried plan repeats its ids"),
    Column("broker_order_id", pl.String, "id given by the broker"),
    _ORDER_TERMS,
    Column("quote", pl.Float64, "price in account currency with which the order was sized"),
    Column("target_weight", pl.Float64, "target weight, fraction of equity"),
    Column("status", pl.String, "placed, filled (completely), partial or cancelled"),
    Column("filled_quantity", pl.Float64, "shares filled so far"),
    Column("reason", pl.String, "why it was cancelled; empty otherwise"),
    Column("placed_at", UTC_TIME, "when it reached the broker; null if cancelled before"),
)
ORDERS = Table("portfolio", "orders", _ORDERS, _BY_YEAR)
_FILLS = TableSchema(
    _PLAN_KEYS,
    Column("order_id", pl.String, "filled order"),
    _ORDER_TERMS,
    Column("price", pl.Float64, "average price in account currency, slippage included"),
    Column("cost", pl.Float64, "fees in account currency"),
    Column("complete", pl.Boolean, "whether the whole order is filled"),
    Column("filled_at", UTC_TIME, "when the fill was recorded"),
)
FILLS = Table("portfolio", "fills", _FILLS, _BY_YEAR)
_PORTFOLIO_STATE = TableSchema(
    _PLAN_KEYS,
    Column("equity", pl.Float64, "equity at the close, net of costs; 1 at the opening"),
    Column("value", pl.Float64, "equity in account currency"),
    EQUITY.only("net_return", "drawdown", "turnover"),
    Column("cost", pl.Float64, "cost of this session's fill, and fees since the last close, fraction of equity"),
    Column("flow", pl.Float64, "deposits less withdrawals since the last close, account currency; not a return"),
    Column("income", pl.Float64, "dividends, interest since the last close, account currency; part of the return"),
    EQUITY.only("cash"),
    ACTION_LOG.only("symbols"),
    Column("weights", pl.List(pl.Float64), "weights at the close"),
    Column("gross", pl.Float64, "sum of absolute weights of names at the close; null in rows of earlier versions"),
    Column("gross_before_cap", pl.Float64, "gross before the cap at the close; null of a long-only account"),
    Column("financing", pl.Float64, "interest and borrow fees of the session, fraction of equity"),
    Column("cap_turnover", pl.Float64, "one-way turnover of the cap's trades at the close"),
    Column("cap_cost", pl.Float64, "cost of these trades, fraction of equity"),
    Column("n_differences", pl.Int64, "number of names not held as expected, found by reconciliation"),
    Column("differences", pl.List(pl.String), "these differences, each as a sentence"),
)
PORTFOLIO_STATE = Table("portfolio", "portfolio_state", _PORTFOLIO_STATE, _BY_YEAR)
_AUDIT = TableSchema(
    Column("line", pl.Int64, "number of the row in the audit, from 1"),
    Column("year", pl.Int32, "year of the event; the partition"),
    Column("event_id", pl.String, "identity of the event, 16 hexadecimal digits"),
    Column(
        "kind",
        pl.String,
        "proposed, constructed, cleared, blocked, approved, overridden, rejected, placed, filled and others",
    ),
    Column("at", UTC_TIME, "when it happened"),
    _ACTOR,
    Column("account", pl.String, "account of the event; null if it concerns none"),
    Column("session", pl.Date, "session of the event"),
    Column("plan_id", pl.String, "plan of the event"),
    Column("order_id", pl.String, "order of the event"),
    Column("symbol", pl.String, "ticker of the event"),
    _POLICY,
    _SNAPSHOT_IDS,
    Column("reason", pl.String, "reason, as a sentence"),
    Column("detail", pl.String, "JSON of further details: plan, findings, order or fill"),
    Column("chain", pl.String, "SHA-256 of this row and the chain of the row before it"),
)
AUDIT = Table("portfolio", "audit", _AUDIT, ("year",))
_ACTIVE_POLICY = TableSchema(
    Column("event_id", pl.String, "identity of the activation in the audit, 16 hexadecimal digits"),
    _POLICY.only("run_id", "policy"),
    _PARTITION_KEY,
    RUN.only("spec_hash"),
    Column("snapshot_ids", pl.String, "JSON of table to snapshot id of the panel it was trained on"),
    RUNS.schema.only("policies_sha256"),
    Column("activated_at", UTC_TIME, "when it was activated"),
    _ACTOR,
    Column("reason", pl.String, "reason of the activation"),
    Column("previous_run_id", pl.String, "run of the policy that was active before; null if none was"),
    Column("previous_policy", pl.String, "name of the previous policy's account"),
    Column("account", pl.String, "account that it trades; null: all accounts, until one has a newer activation"),
    Column("active", pl.Boolean, "whether it is the newest activation of its account"),
)
ACTIVE_POLICY = Table("portfolio", "active_policy", _ACTIVE_POLICY)
