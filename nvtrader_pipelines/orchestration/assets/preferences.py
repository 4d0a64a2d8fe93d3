"""Preferences: decisions of people, their outcomes, and pairs of proposals from the same state."""

from collections import Counter
from functools import partial

import dagster as dg

from nvtrader_pipelines.evaluation.step_generators import drain
from nvtrader_pipelines.feedback.decisions import audited_decisions, extract_decisions
from nvtrader_pipelines.feedback.outcomes import write_outcomes
from nvtrader_pipelines.feedback.pairs import write_preference_pairs
from nvtrader_pipelines.feedback.tuning import tune_run, tuning_obstacle
from nvtrader_pipelines.figures.agreement_figure import agreement_figure
from nvtrader_pipelines.figures.tuning_figure import tuning_figure
from nvtrader_pipelines.orchestration.mlflow_tracking import MlflowTracking
from nvtrader_pipelines.orchestration.partitions import experiment_asset
from nvtrader_pipelines.orchestration.progress_log import ProgressLog
from nvtrader_pipelines.orchestration.reports import markdown_table, store_pictures, table_result
from nvtrader_pipelines.runs.lifecycle import Launch, now
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.tables import DECISIONS, OUTCOMES, PREFERENCE_PAIRS

DECISIONS_KEY = dg.AssetKey(["preferences", "decisions"])
OUTCOMES_KEY = dg.AssetKey(["preferences", "outcomes"])
PAIRS_KEY = dg.AssetKey(["preferences", "preference_pairs"])
DPO_POLICY_KEY = dg.AssetKey(["policies", "dpo_policy"])


@dg.asset(
    key=DECISIONS_KEY,
    group_name="preferences",
    kinds={"iceberg"},
    deps=[["portfolio", "rebalance_plan"]],
    code_version="1",
)
def decisions(store: dg.ResourceParam[Store]) -> dg.MaterializeResult:
    """Decisions of people on plans, from the audit; lines of their file that differ are set aside."""
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
    judged = write_outcomes(store, audited_decisions(store), now())
    problems = dg.MetadataValue.json(judged.problems)
    figures = store_pictures(store.home, "outcomes", {"agreement": agreement_figure(judged.rows)})
    metadata = {**figures, "not_known_yet": judged.n_pending, "without_outcome": problems}
    return table_result(store, OUTCOMES, len(judged.rows), metadata)


@experiment_asset(
    key=PAIRS_KEY,
    group_name="preferences",
    kinds={"iceberg", "polars"},
    deps=[["policies", "trained_policy"], OUTCOMES_KEY],
    code_version="2",
)
def preference_pairs(context: dg.AssetExecutionContext, store: dg.ResourceParam[Store]) -> dg.MaterializeResult:
    """Pairs of a chosen and a rejected portfolio from one state: of candidates in training, and of people."""
    counts = write_preference_pairs(store, store.policies.read_latest(context.partition_key))
    metadata = {"holdout": counts.n_held_out, "won_by_policy": counts.n_won, "of_people": counts.n_of_people}
    return table_result(store, PREFERENCE_PAIRS, counts.n_pairs, metadata)


@experiment_asset(
    key=DPO_POLICY_KEY, group_name="policies", kinds={"pytorch", "mlflow"}, deps=[PAIRS_KEY], pool="training"
)
def dpo_policy(
    context: dg.AssetExecutionContext,
    store: dg.ResourceParam[Store],
    mlflow: MlflowTracking,
    progress: dg.ResourceParam[ProgressLog],
) -> dg.MaterializeResult:
    """Policies of an experiment tuned to its preference pairs, judged like any run; or why they are not."""
    run = store.policies.read_latest(context.partition_key)
    obstacle = tuning_obstacle(store, run)
    if obstacle is not None:
        context.log.info("not tuned: %s", obstacle)
        return dg.MaterializeResult(metadata={"tuned": False, "verdict": f"not tuned: {obstacle}"})
    launch = Launch(context.run.run_id, context.run.run_id)
    track = partial(mlflow.track, warn=context.log.warning)
    check = drain(tune_run(store, run, launch, track), progress.reporter(context))
    figure = tuning_figure(check.epochs, check.auc, check.calibration, f"{check.experiment}: tuned to preference pairs")
    return dg.MaterializeResult(
        metadata={
            **store_pictures(store.home, "dpo_policy", {"tuning": figure}, context.partition_key),
            "tuned": True,
            "verdict": check.sentence,
            "auc": check.auc.auc,
            "run_id": check.run_id,
            "mlflow_run_id": store.ledger.run(check.run_id).mlflow_run_id,
            "notes": list(check.notes),
            "rejected_winners": dg.MetadataValue.md(markdown_table(check.rejected_winners)),
        }
    )
