"""Columns of preference pairs."""

import polars as pl

from nvtrader_pipelines.components.columns import Column, TableSchema

PREFERENCE_PAIR = TableSchema(
    Column("pair_id", pl.String, "identity of the pair"),
    Column("session", pl.Date, "session of the decision"),
    Column("outcome_session", pl.Date, "session at which the outcome is known"),
    Column("chosen", pl.String, "account whose weights did better"),
    Column("rejected", pl.String, "account whose weights did worse"),
    Column("symbols", pl.List(pl.String), "names in the order of the weights, cash last"),
    Column("chosen_weights", pl.List(pl.Float64), "the better weights"),
    Column("rejected_weights", pl.List(pl.Float64), "the worse weights"),
    Column("chosen_outcome", pl.Float64, "return over five sessions net of cost"),
    Column("rejected_outcome", pl.Float64, "return over five sessions net of cost"),
    Column("margin", pl.Float64, "difference of the outcomes"),
    Column("holdout", pl.Boolean, "never to be trained on: the last 20 % by time"),
)
