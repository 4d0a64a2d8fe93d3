"""Columns of preference pairs."""

import polars as pl

from nvtrader_pipelines.components.columns import Column, TableSchema

PREFERENCE_PAIR = TableSchema(
    Column("pair_id", pl.String, "identity of the pair"),
    Column("source", pl.String, "counterfactual: candidates at a rebalance in training; person: decision on a plan"),
    Column("decision_id", pl.String, "decision of a person; null if counterfactual"),
    Column("fold", pl.Int32, "fold whose policy proposed; null of a person's"),
    Column("window", pl.String, "first and last session of the fold's training; null of a person's"),
    Column("session", pl.Date, "session of the decision"),
    Column("outcome_session", pl.Date, "session at which the outcome is known"),
    Column("part", pl.String, "train; stop or report: hold-out that ends a training, or that it is reported on"),
    Column("holdout", pl.Boolean, "never to be trained on: one quarter of five"),
    Column("chosen", pl.String, "whose weights are chosen"),
    Column("rejected", pl.String, "whose weights are rejected"),
    Column("symbols", pl.List(pl.String), "names in the order of the weights, cash last"),
    Column("held_weights", pl.List(pl.Float64), "weights at the close of the session"),
    Column("drawdown", pl.Float64, "loss of the account from its highest equity, positive"),
    Column("chosen_weights", pl.List(pl.Float64), "target weights"),
    Column("rejected_weights", pl.List(pl.Float64), "target weights"),
    Column("chosen_outcome", pl.Float64, "return over five sessions net of cost, a fraction"),
    Column("rejected_outcome", pl.Float64, "return over five sessions net of cost, a fraction"),
    Column("margin", pl.Float64, "difference of the outcomes"),
    Column("noise", pl.Float64, "deviation of that difference over five sessions, from the 252 sessions before"),
    Column(
        "label", pl.Float64, "soft label, how far the margin is beyond noise: normal distribution of margin over noise"
    ),
    Column("weight", pl.Float64, "of a hard label: 2 where person and market agree, else 1"),
    Column("swapped", pl.Boolean, "whether a person preferred the rejected weights, and the market contradicted"),
    Column("observation_hash", pl.Int64, "XXH64 of what the policy saw, signed; null if it sees none"),
)
