"""The columns of the tables that a back-test leaves: sessions, decisions and reward terms of every account."""

import polars as pl

from nvtrader_pipelines.components.columns import Column, TableSchema
from nvtrader_pipelines.policies.rollout_tables import ACCOUNT, DECISION, TRAJECTORY

EQUITY = TableSchema(
    ACCOUNT,
    Column("session", pl.Date, "session of the market, at whose close the row holds"),
    Column("equity", pl.Float64, "equity at the close, net of costs; 1 at the start"),
    Column("net_return", pl.Float64, "simple return over the session, net of costs"),
    TRAJECTORY.only("drawdown"),
    Column("turnover", pl.Float64, "one-way turnover at this session's fill, and of a cap on gross at its close"),
    Column("cost", pl.Float64, "cost paid for this turnover, fraction of equity"),
    Column("cash", pl.Float64, "weight of cash at the close; negative: debt"),
    Column("gross", pl.Float64, "sum of absolute weights of the names at the close"),
    Column("gross_before_cap", pl.Float64, "the same before a cap on gross at the close"),
    Column("financing", pl.Float64, "interest and borrow fees paid in the session, fraction of equity"),
)
ACTION_LOG = TableSchema(
    ACCOUNT,
    DECISION,
    Column("symbols", pl.List(pl.String), "names in the order of the weights, cash last"),
    Column("target_weights", pl.List(pl.Float64), "weights wanted"),
    Column("executed_weights", pl.List(pl.Float64), "weights just after the fill"),
    Column("trades", pl.List(pl.Float64), "change of weights by trading"),
)
REWARD_TERM = TableSchema(
    ACCOUNT,
    DECISION,
    Column("term", pl.String, "reward term"),
    Column("contribution", pl.Float64, "its part of the step's reward, weight included"),
)
