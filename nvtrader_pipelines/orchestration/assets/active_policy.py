"""The policy that trades: what the promotion gate says of every experiment's newest run."""

import dagster as dg
import polars as pl

from nvtrader_pipelines.orchestration.reports import markdown_table, shown_snapshots, written
from nvtrader_pipelines.promotion.active_policy import read_active
from nvtrader_pipelines.promotion.decide import mirror_active
from nvtrader_pipelines.promotion.rounds import evaluate_newest
from nvtrader_pipelines.runs.lifecycle import now
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.tables import ACTIVE_POLICY

ACTIVE_POLICY_KEY = dg.AssetKey(["portfolio", "active_policy"])
ACTIVATION = "activation"  # of the materialisation: the id of the activation in force, whoever made it and when
VERDICT = "verdict"


@dg.asset(
    key=ACTIVE_POLICY_KEY,
    group_name="portfolio",
    kinds={"iceberg", "json"},
    deps=[["evaluation", "validation"], ["evaluation", "scoreboard"]],
    code_version="1",
)
def active_policy(store: dg.ResourceParam[Store]) -> dg.MaterializeResult:
    """The policy that decides from the next close on: another one only where the gate says that it is better."""
    found = evaluate_newest(store, "gate", now)
    mirror_active(store)
    rows = [
        (decision.candidate.run_id, decision.candidate.policy, decision.verdict.sentence)
        for decision in found.decisions
    ]
    rows += [("", experiment, problem) for experiment, problem in found.problems.items()]
    table = pl.DataFrame(rows, schema=["run_id", "policy", "sentence"], orient="row")
    said = {VERDICT: found.summary, "answers": dg.MetadataValue.md(markdown_table(table))}
    return written(store, ACTIVE_POLICY, len(store.tables.read(ACTIVE_POLICY)), {**said, **pointer(store)})


def pointer(store: Store) -> dict[str, object]:
    """What says which policy trades, and by which activation."""
    active = read_active(store)
    if active is None:
        return {"policy": "no policy trades", ACTIVATION: ""}
    said = active.model_dump(mode="json") | {"snapshot_ids": shown_snapshots(active.snapshot_ids)}
    return {
        "policy": active.policy,
        "run_id": active.run_id,
        "activated_at": dg.MetadataValue.timestamp(active.activated_at),
        "activated_by": active.by,
        "pointer": dg.MetadataValue.json(said),
        ACTIVATION: active.event.event_id,
    }
