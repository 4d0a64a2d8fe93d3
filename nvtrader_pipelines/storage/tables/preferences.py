"""Decisions of people, what the market made of them, and pairs of a chosen and a rejected decision."""

import polars as pl

from nvtrader_pipelines.components.columns import UTC_TIME, Column, TableSchema
from nvtrader_pipelines.evaluation.account_tables import ACTION_LOG
from nvtrader_pipelines.evaluation.verdict_tables import RUN
from nvtrader_pipelines.policies.rollout_tables import PREFERENCE_EPOCH, TRAINING_CURVE
from nvtrader_pipelines.preferences.outcome_table import OUTCOME
from nvtrader_pipelines.preferences.pair_table import PREFERENCE_PAIR
from nvtrader_pipelines.storage.table import BY_RUN, Table
from nvtrader_pipelines.storage.tables.portfolio import REBALANCE_PLAN

PREFERENCE_PAIRS = Table("preferences", "preference_pairs", TableSchema(RUN, PREFERENCE_PAIR), BY_RUN)
DPO_EPOCHS = Table(
    "preferences",
    "dpo_epochs",
    TableSchema(RUN, TRAINING_CURVE.only("fold", "seed"), PREFERENCE_EPOCH),
    BY_RUN,
)
_DPO_CHECKS = TableSchema(
    RUN,
    Column("experiment", pl.String, "experiment of the tuned policies"),
    Column("checked_at", UTC_TIME, "when"),
    Column("start", pl.String, "run whose policies were tuned"),
    Column("pairs", pl.String, "SHA-256 of the pairs"),
    Column("n_trained", pl.Int64, "pairs trained on, of all folds"),
    Column("n_of_people", pl.Int64, "those of people, among all pairs"),
    Column("n_pairs", pl.Int64, "held-out pairs that are reported on"),
    Column("n_decisions", pl.Int64, "weeks of these pairs, which count as one decision each"),
    Column("auc", pl.Float64, "area under the ROC curve of the reported pairs, mean of the seeds; 0.5 is chance"),
    Column("auc_low", pl.Float64, "lower bound of its 95 % interval"),
    Column("auc_high", pl.Float64, "upper bound of its 95 % interval"),
    Column("accuracy", pl.Float64, "share of pairs whose chosen portfolio gained more than the rejected one"),
    Column("kl", pl.Float64, "mean divergence of the tuned policies from the start, nats a decision"),
    Column("auc_before", pl.Float64, "AUC of the check before, of the same start's experiment; null for the first"),
    Column("passed", pl.Boolean, "whether the interval lies above 0.5"),
    Column("sentence", pl.String, "the verdict"),
)
DPO_CHECKS = Table("preferences", "dpo_checks", _DPO_CHECKS, BY_RUN)
_DECISIONS = TableSchema(
    Column("schema_version", pl.Int64, "version of the row's schema"),
    Column("decision_id", pl.String, "identity of the decision: id of its event in the audit"),
    Column("plan_id", pl.String, "plan of the chosen weights: the person's own for an edit"),
    Column("parent_id", pl.String, "plan that a person edited into this one; null for a plan of the policy"),
    Column("account", pl.String, "name of the account"),
    Column("session", pl.Date, "session at whose close the plan was decided"),
    Column("by", pl.String, "person who decided"),
    Column("at", UTC_TIME, "when the person decided"),
    Column("decision", pl.String, "approved, overridden, edited, rejected, skipped or equal"),
    Column("reason", pl.String, "the person's reason"),
    ACTION_LOG.only("symbols"),
    Column("held_weights", pl.List(pl.Float64), "weights at the close of the session"),
    Column("proposed_weights", pl.List(pl.Float64), "target weights of the plan that was decided on"),
    Column("chosen_weights", pl.List(pl.Float64), "target weights after the decision; null if skipped or equal"),
    Column("order_symbols", pl.List(pl.String), "names that the proposal trades"),
    Column("order_changes", pl.List(pl.Float64), "changes of their weights, fractions of equity"),
    Column("order_amounts", pl.List(pl.Float64), "the changes in account currency, at the close of the session"),
    *REBALANCE_PLAN.schema.only("policy", "run_id", "partition_key").columns,
    Column("observation_hash", pl.Int64, "XXH64 of what the policy saw, signed; null if it sees none"),
    *REBALANCE_PLAN.schema.only("snapshot_ids").columns,
    Column("outcome_known", pl.Boolean, "whether the fill session had begun: no label of foresight"),
)
DECISIONS = Table("preferences", "decisions", _DECISIONS)
_REFUSED_DECISIONS = TableSchema(
    Column("line", pl.Int64, "number of the line in data/audit/rebalance_decisions.jsonl, from 1"),
    Column("reason", pl.String, "why it is no decision, as a sentence"),
    Column("text", pl.String, "the line, with backslashes for bytes that are not UTF-8"),
)
REFUSED_DECISIONS = Table("preferences", "refused_decisions", _REFUSED_DECISIONS)
OUTCOMES = Table("preferences", "outcomes", OUTCOME)
