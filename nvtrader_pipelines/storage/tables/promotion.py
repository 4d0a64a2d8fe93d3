"""What the promotion gate and people decided."""

import polars as pl

from nvtrader_pipelines.components.columns import UTC_TIME, Column, TableSchema
from nvtrader_pipelines.storage.table import Table

PROMOTION_DECISIONS = Table(
    "promotion",
    "decisions",
    TableSchema(
        Column(
            "promotion_id",
            pl.String,
            "identity of the answer: who decides, the two policies, figures and rule, or what it replaced",
        ),
        Column("decision", pl.String, "gate (it decides) or person (the gate is heard and a person decides)"),
        Column("run_id", pl.String, "run of the candidate, 16 hexadecimal digits"),
        Column("policy", pl.String, "name that the candidate's account had in the evaluation"),
        Column("partition_key", pl.String, "experiment of the candidate, name@hash8"),
        Column("spec_hash", pl.String, "SHA-256 of the candidate's spec"),
        Column("active_run_id", pl.String, "run of the policy that traded then; null where none did"),
        Column("active_policy", pl.String, "name of that policy's account"),
        Column("passed", pl.Boolean, "whether the candidate passed the gate"),
        Column("activated", pl.Boolean, "whether it then took the other's place"),
        Column("sentence", pl.String, "what the gate said, with its figures"),
        Column("n_sessions", pl.Int64, "sessions that both were tested on"),
        Column("first_session", pl.Date, "first of them"),
        Column("last_session", pl.Date, "last of them"),
        Column("sharpe", pl.Float64, "annualised Sharpe ratio of the candidate on them, net of costs"),
        Column("active_sharpe", pl.Float64, "that of the policy that traded"),
        Column("active_difference", pl.Float64, "Sharpe ratio of the candidate less that one"),
        Column("active_low", pl.Float64, "lower bound of the difference, paired stationary bootstrap"),
        Column("active_high", pl.Float64, "upper bound"),
        Column(
            "best_baseline",
            pl.String,
            "baseline of the candidate's run with the highest Sharpe ratio on the same sessions",
        ),
        Column("baseline_sharpe", pl.Float64, "its Sharpe ratio"),
        Column("baseline_difference", pl.Float64, "Sharpe ratio of the candidate less that one"),
        Column("baseline_low", pl.Float64, "lower bound of the difference, paired stationary bootstrap"),
        Column("baseline_high", pl.Float64, "upper bound"),
        Column(
            "deflated_sharpe",
            pl.Float64,
            "deflated information ratio of the run over its best baseline; null where not known",
        ),
        Column("gate", pl.String, "JSON of the gate's settings"),
        Column("by", pl.String, "who asked"),
        Column("reason", pl.String, "why a person decided so; empty where none did"),
        Column("considered_at", UTC_TIME, "when the gate said so first"),
    ),
)
