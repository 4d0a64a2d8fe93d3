"""What the loop wanted, what was found, and what was done: projections of the audit and of the accounts' own books."""

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
_SNAPSHOT_IDS = Column("snapshot_ids", pl.String, "JSON of table to snapshot id of the panel decided on")
_PARTITION_KEY = Column("partition_key", pl.String, "experiment, name@hash8")
_BY = Column("by", pl.String, "who: a person, or the component that acted")
_OF_PLAN = TableSchema(
    Column("account", pl.String, "name of the account"),
    BAR.only("year"),
    Column(
        "session", pl.Date, "session of the exchange (XNYS); of plans and weights the one at whose close it was decided"
    ),
    Column("plan_id", pl.String, "identity of the plan, 16 hexadecimal digits"),
    _POLICY,
    _SNAPSHOT_IDS,
)
_OF_ORDER = TableSchema(
    Column("symbol", pl.String, "name"),
    Column("side", pl.String, "buy or sell"),
    Column("quantity", pl.Float64, "shares, positive"),
)
_BY_YEAR = ("account", "year")
REBALANCE_PLAN = Table(
    "portfolio",
    "rebalance_plan",
    TableSchema(
        _OF_PLAN,
        _PARTITION_KEY,
        Column("fold", pl.Int32, "fold of the walk-forward whose policies decided"),
        Column("seeds", pl.List(pl.Int32), "random seeds of those policies"),
        ACTION_LOG.only("symbols"),
        Column("held_weights", pl.List(pl.Float64), "weights at the close of the decision"),
        ACTION_LOG.only("target_weights"),
        Column("turnover", pl.Float64, "one-way: half the sum of absolute changes from held to target, cash included"),
        Column("truncated", pl.Boolean, "whether a limit of the pipeline that marks it cut the weights"),
        Column(
            "status",
            pl.String,
            "constructed, blocked, waiting, cleared, approved, overridden, rejected, cancelled, placed, filled",
        ),
        Column("n_hard", pl.Int64, "findings that block it"),
        Column("n_soft", pl.Int64, "findings that wait for acknowledgement"),
        Column("n_warn", pl.Int64, "findings that are only kept"),
        Column("findings", pl.String, "JSON list of rule, level, symbol, figure, bound and sentence"),
        Column("reason", pl.String, "of the last decision, block or cancellation"),
        Column("decided_by", pl.String, "who approved, overrode or rejected it; null where nobody did"),
        Column("constructed_at", UTC_TIME, "when it was constructed"),
        Column("cleared_at", UTC_TIME, "when compliance looked at it"),
        Column("decided_at", UTC_TIME, "when it was approved, overridden or rejected"),
    ),
    _BY_YEAR,
)
TARGET_WEIGHTS = Table(
    "portfolio",
    "target_weights",
    TableSchema(
        _OF_PLAN,
        Column("step", pl.Int32, "number of the stage: 0 is the policy's proposal, the last is traded"),
        Column("stage", pl.String, "policy, then the kinds of selector, allocator, timing and limits"),
        Column("symbol", pl.String, "name; cash for what is in none"),
        Column("weight", pl.Float64, "weight after the stage"),
        Column("change", pl.Float64, "weight less that after the stage before; of the proposal less what is held"),
        Column("reason", pl.String, "what the stage changed and why; empty where it changed nothing"),
    ),
    _BY_YEAR,
)
ORDERS = Table(
    "portfolio",
    "orders",
    TableSchema(
        _OF_PLAN,
        Column("order_id", pl.String, "plan and symbol: a retried plan makes the same orders"),
        Column("broker_order_id", pl.String, "the broker's own name for it"),
        _OF_ORDER,
        Column("quote", pl.Float64, "price in account currency that the quantity was made with"),
        Column("target_weight", pl.Float64, "weight wanted, fraction of equity"),
        Column("status", pl.String, "placed, filled (whole), partial or cancelled"),
        Column("filled_quantity", pl.Float64, "shares filled so far"),
        Column("reason", pl.String, "why it was cancelled; empty where it was not"),
        Column("placed_at", UTC_TIME, "when the broker had it; null where it was cancelled before"),
    ),
    _BY_YEAR,
)
FILLS = Table(
    "portfolio",
    "fills",
    TableSchema(
        _OF_PLAN,
        Column("order_id", pl.String, "order that was filled"),
        _OF_ORDER,
        Column("price", pl.Float64, "average price in account currency, slippage included"),
        Column("cost", pl.Float64, "fees in account currency"),
        Column("complete", pl.Boolean, "whether the whole order is filled"),
        Column("filled_at", UTC_TIME, "when the fill was recorded"),
    ),
    _BY_YEAR,
)
PORTFOLIO_STATE = Table(
    "portfolio",
    "portfolio_state",
    TableSchema(
        _OF_PLAN,
        Column("equity", pl.Float64, "equity at the close, net of costs; 1 at the opening"),
        Column("value", pl.Float64, "the same in account currency"),
        EQUITY.only("net_return", "drawdown", "turnover"),
        Column(
            "cost",
            pl.Float64,
            "cost paid at this session's fill and fees booked since the last close, fraction of equity",
        ),
        Column(
            "flow",
            pl.Float64,
            "paid in, or out if negative, since the last close, account currency; no part of the return",
        ),
        Column(
            "income",
            pl.Float64,
            "dividends and interest booked since the last close, account currency; a part of the return",
        ),
        EQUITY.only("cash"),
        ACTION_LOG.only("symbols"),
        Column("weights", pl.List(pl.Float64), "weights at the close"),
        Column("n_differences", pl.Int64, "names not held as expected, by reconciliation"),
        Column("differences", pl.List(pl.String), "each as a sentence"),
    ),
    _BY_YEAR,
)
AUDIT = Table(
    "portfolio",
    "audit",
    TableSchema(
        Column("line", pl.Int64, "number of the row in the audit, from 1"),
        Column("year", pl.Int32, "year of the moment it happened; the partition"),
        Column("event_id", pl.String, "identity of the event, 16 hexadecimal digits"),
        Column(
            "kind",
            pl.String,
            "proposed, constructed, cleared, blocked, approved, overridden, rejected, placed, filled and so on",
        ),
        Column("at", UTC_TIME, "when it happened"),
        _BY,
        Column("account", pl.String, "name of the account; null where it is about none"),
        Column("session", pl.Date, "session it is about"),
        Column("plan_id", pl.String, "plan it is about"),
        Column("order_id", pl.String, "order it is about"),
        Column("symbol", pl.String, "name it is about"),
        _POLICY.only("policy"),
        Column("run_id", pl.String, "run that trained the policy"),
        RUN.only("spec_hash"),
        _SNAPSHOT_IDS,
        Column("reason", pl.String, "why, as a sentence"),
        Column("detail", pl.String, "JSON of what else was said: plan, findings, order, fill"),
        Column("chain", pl.String, "SHA-256 of the row and of the chain of the row before it"),
    ),
    ("year",),
)
ACTIVE_POLICY = Table(
    "portfolio",
    "active_policy",
    TableSchema(
        Column("event_id", pl.String, "identity of the activation in the audit, 16 hexadecimal digits"),
        _POLICY.only("run_id", "policy"),
        _PARTITION_KEY,
        RUN.only("spec_hash"),
        Column("snapshot_ids", pl.String, "JSON of table to snapshot id of the panel it was trained on"),
        RUNS.schema.only("policies_sha256"),
        Column("activated_at", UTC_TIME, "when it was activated"),
        _BY,
        Column("reason", pl.String, "why"),
        Column("previous_run_id", pl.String, "run of the policy that traded before; null where none did"),
        Column("previous_policy", pl.String, "name of that policy's account"),
        Column("active", pl.Boolean, "whether it is the one that trades now"),
    ),
)
