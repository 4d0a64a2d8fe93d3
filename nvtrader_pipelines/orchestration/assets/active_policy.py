"""Active policy, as decided by the promotion gate on the newest run of every experiment."""

import dagster as dg
import polars as pl

from nvtrader_pipelines.desk.mirror import mirror_home_events
from nvtrader_pipelines.orchestration.reports import format_snapshot_ids, markdown_table, table_result
from nvtrader_pipelines.promotion.active_policy import read_active
from nvtrader_pipelines.promotion.promote import mirror_active
from nvtrader_pipelines.promotion.rounds import PromotionRound, evaluate_newest
from nvtrader_pipelines.runs.lifecycle import now
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.tables import ACTIVE_POLICY

ACTIVE_POLICY_KEY = dg.AssetKey(["portfolio", "active_policy"])
ACTIVATION = "activation"  # metadata: id of the activation in force, by the gate or by a person
VERDICT = "verdict"


@dg.asset(
    key=ACTIVE_POLICY_KEY,
    group_name="portfolio",
    kinds={"iceberg"},
    deps=[["evaluation", "validation"], ["evaluation", "scoreboard"]],
    code_version="1",
)
def active_policy(store: dg.ResourceParam[Store]) -> dg.MaterializeResult:
    """Policy that trades from the next close on, as decided by the promotion gate."""
    promotion_round = evaluate_newest(store, "gate", now)
    mirror_active(store)
    mirror_home_events(store)
    decisions = {
        VERDICT: promotion_round.summary,
        "answers": dg.MetadataValue.md(markdown_table(decision_rows(promotion_round))),
    }
    n_rows = len(store.tables.read(ACTIVE_POLICY))
    return table_result(store, ACTIVE_POLICY, n_rows, {**decisions, **activation_metadata(store)})


def decision_rows(found: PromotionRound) -> pl.DataFrame:
    """Decision of the gate on each candidate, and the problem of each experiment without one."""
    rows = [
        (decision.candidate.run_id, decision.candidate.policy, decision.verdict.sentence)
        for decision in found.decisions
    ]
    rows += [("", experiment, problem) for experiment, problem in found.problems.items()]
    return pl.DataFrame(rows, schema=["run_id", "policy", "sentence"], orient="row")


def activation_metadata(store: Store) -> dict[str, object]:
    """Metadata of the active policy and its activation."""
    active = read_active(store)
    if active is None:
        return {"policy": "no policy is active", ACTIVATION: ""}
    document = active.model_dump(mode="json") | {"snapshot_ids": format_snapshot_ids(active.snapshot_ids)}
    return {
        "policy": active.policy,
        "run_id": active.run_id,
        "activated_at": dg.MetadataValue.timestamp(active.activated_at),
        "activated_by": active.by,
        "activation_document": dg.MetadataValue.json(document),
        ACTIVATION: active.event.event_id,
    }
