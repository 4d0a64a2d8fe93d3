"""Preferences: decisions of people, their outcomes, and pairs of proposals from the same state."""

from collections import Counter

import dagster as dg

from nvtrader_pipelines.desk.decision_outcomes import write_outcomes
from nvtrader_pipelines.desk.decision_rows import extract_decisions
from nvtrader_pipelines.desk.preference_pairs import write_preference_pairs
from nvtrader_pipelines.figures.agreement_figure import agreement_figure
from nvtrader_pipelines.orchestration.partitions import EXPERIMENTS
from nvtrader_pipelines.orchestration.reports import store_pictures, table_result
from nvtrader_pipelines.runs.lifecycle import now
from nvtrader_pipelines.storage.decision_file import read_decisions
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.tables import DECISIONS, OUTCOMES, PREFERENCE_PAIRS

DECISIONS_KEY = dg.AssetKey(["preferences", "decisions"])
OUTCOMES_KEY = dg.AssetKey(["preferences", "outcomes"])


@dg.asset(
    key=DECISIONS_KEY,
    group_name="preferences",
    kinds={"iceberg"},
    deps=[["portfolio", "rebalance_plan"]],
    code_version="1",
)
def decisions(store: dg.ResourceParam[Store]) -> dg.MaterializeResult:
    """Decisions of people on plans, from `data/audit/rebalance_decisions.jsonl`; lines that are none are set aside."""
    rows, refused = extract_decisions(store)
    counts = Counter(row.decision for row in rows)
    return table_result(store, DECISIONS, len(rows), {**counts, "refused_lines": len(refused)})


@dg.asset(
    key=OUTCOMES_KEY,
    group_name="preferences",
    kinds={"iceberg", "polars"},
    deps=[DECISIONS_KEY, ["gold", "market_panel"]],
    code_version="1",
)
def outcomes(store: dg.ResourceParam[Store]) -> dg.MaterializeResult:
    """What the market made of decisions five sessions later, for the proposed, the chosen and the kept weights."""
    decided, _ = read_decisions(store.home)
    judged = write_outcomes(store, decided, now())
    problems = dg.MetadataValue.json(judged.problems)
    figures = store_pictures(store.home, "outcomes", {"agreement": agreement_figure(judged.rows)})
    metadata = {**figures, "not_known_yet": judged.n_pending, "without_outcome": problems}
    return table_result(store, OUTCOMES, len(judged.rows), metadata)


@dg.asset(
    key=["preferences", "preference_pairs"],
    group_name="preferences",
    kinds={"iceberg", "polars"},
    deps=[["policies", "trained_policy"], OUTCOMES_KEY],
    partitions_def=EXPERIMENTS,
    code_version="2",
)
def preference_pairs(context: dg.AssetExecutionContext, store: dg.ResourceParam[Store]) -> dg.MaterializeResult:
    """Pairs of a chosen and a rejected portfolio from one state: of candidates in training, and of people."""
    counts = write_preference_pairs(store, store.policies.read_latest(context.partition_key))
    metadata = {"holdout": counts.n_held_out, "won_by_policy": counts.n_won, "of_people": counts.n_of_people}
    return table_result(store, PREFERENCE_PAIRS, counts.n_pairs, metadata)
