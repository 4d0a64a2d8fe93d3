"""Decisions of the promotion gate and of people."""

import polars as pl

from nvtrader_pipelines.components.columns import UTC_TIME, Column, TableSchema
from nvtrader_pipelines.storage.table import Table

_PROMOTION_DECISIONS = TableSchema(
    Column("promotion_id", pl.String, "digest of decider, policies, figures and gate, or of the replaced policy"),
    Column("decision", pl.String, "who decides: gate, or person (the gate is consulted)"),
    Column("run_id", pl.String, "run of the candidate, 16 hexadecimal digits"),
    Column("policy", pl.String, "name that the candidate's account had in the evaluation"),
    Column("partition_key", pl.String, "experiment of the candidate, name@hash8"),
    Column("spec_hash", pl.String, "SHA-256 of the candidate's spec"),
    Column("account", pl.String, "account that the candidate would trade; null: all accounts"),
    Column("active_run_id", pl.String, "run of the policy that was active; null if none was"),
    Column("active_policy", pl.String, "name of the active policy's account"),
    Column("passed", pl.Boolean, "whether the candidate passed the gate"),
    Column("activated", pl.Boolean, "whether the candidate was then activated"),
    Column("sentence", pl.String, "verdict of the gate, with its figures"),
    Column("n_sessions", pl.Int64, "number of sessions on which both were tested"),
    Column("first_session", pl.Date, "first of these sessions"),
    Column("last_session", pl.Date, "last of these sessions"),
    Column("sharpe", pl.Float64, "annualized Sharpe ratio of the candidate on these sessions, net of costs"),
    Column("active_sharpe", pl.Float64, "annualized Sharpe ratio of the active policy on these sessions"),
    Column("active_difference", pl.Float64, "Sharpe ratio of the candidate less that of the active policy"),
    Column("active_difference_low", pl.Float64, "lower bound of the difference, paired stationary bootstrap"),
    Column("active_difference_high", pl.Float64, "upper bound of the difference"),
    Column("best_baseline", pl.String, "baseline of the candidate's run with the highest Sharpe ratio then"),
    Column("baseline_sharpe", pl.Float64, "annualized Sharpe ratio of that baseline"),
    Column("baseline_difference", pl.Float64, "Sharpe ratio of the candidate less that of the baseline"),
    Column("baseline_difference_low", pl.Float64, "lower bound of the difference, paired stationary bootstrap"),
    Column("baseline_difference_high", pl.Float64, "upper bound of the difference"),
    Column("deflated_sharpe", pl.Float64, "deflated information ratio against the best baseline; null if unknown"),
    Column("rule", pl.String, "rule of the gate: lower_bound or best_sharpe"),
    Column("gate", pl.String, "JSON of the gate's settings"),
    Column("by", pl.String, "person or component that asked"),
    Column("reason", pl.String, "reason given by a person; empty if the gate decided"),
    Column("considered_at", UTC_TIME, "when the gate first reached this verdict"),
)
PROMOTION_DECISIONS = Table("promotion", "decisions", _PROMOTION_DECISIONS)
