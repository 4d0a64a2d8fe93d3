"""Policies: versions of experiments, trained networks as files, and training curves."""

import dagster as dg

from nvtrader_pipelines.evaluation.step_generators import drain
from nvtrader_pipelines.experiments.runtime import training_curves
from nvtrader_pipelines.figures import learning_figure
from nvtrader_pipelines.orchestration.event_files import EventFiles
from nvtrader_pipelines.orchestration.mlflow_tracking import MlflowTracking
from nvtrader_pipelines.orchestration.partitions import experiment_asset
from nvtrader_pipelines.orchestration.progress_log import ProgressLog
from nvtrader_pipelines.orchestration.reports import format_snapshot_ids, markdown_table, store_pictures, table_result
from nvtrader_pipelines.research.hand_over import judged_policies, record_retrained
from nvtrader_pipelines.runs.lifecycle import Launch
from nvtrader_pipelines.runs.planning import read_plan
from nvtrader_pipelines.runs.run_tables import replace_run
from nvtrader_pipelines.runs.train_walk_judge import adopt_policies, train_run
from nvtrader_pipelines.storage.spec_versions import version_changes
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.tables import TRAINING_CURVES

VERSION_KEY = dg.AssetKey(["policies", "experiment_version"])
POLICY_KEY = dg.AssetKey(["policies", "trained_policy"])


@experiment_asset(
    key=POLICY_KEY,
    group_name="policies",
    kinds={"pytorch", "mlflow"},
    deps=[["gold", "market_panel"], VERSION_KEY],
    pool="training",
)
def trained_policy(
    context: dg.AssetExecutionContext,
    store: dg.ResourceParam[Store],
    mlflow: MlflowTracking,
    event_files: EventFiles,
    progress: dg.ResourceParam[ProgressLog],
) -> dg.MaterializeResult:
    """One policy per fold and seed, trained on the fold's training window; safetensors files."""
    plan, launch = read_plan(store, context.partition_key), Launch(context.run.run_id, context.run.run_id)
    with mlflow.track(plan, context.log.warning) as tracked:
        with event_files.live_curves(context.partition_key) as write_event:
            report = progress.reporter(context, write_event)
            drain(adopt_policies(store, plan, judged_policies(store, plan.spec), launch), report)
            drain(train_run(store, plan, launch, tracked), report)
        run = store.policies.read_latest(context.partition_key)
        record_retrained(store, run)
    archives = store.policies.read_run(run)
    curves = training_curves(archives)
    title, note = f"{plan.spec.name}: mean reward in training", "; ".join(plan.warnings)
    figures = {"learning_curve": learning_figure(curves, title, note)}
    return dg.MaterializeResult(
        metadata={
            "run_id": plan.run_id,
            "spec_hash": run.spec_hash,
            "snapshots": dg.MetadataValue.json(format_snapshot_ids(run.snapshot_ids)),
            "policies": len(archives),
            "size_bytes": sum(len(content) for content in archives.values()),
            "sha256": run.sha256,
            "folder": dg.MetadataValue.path(str(store.policies.folder(run.partition_key, run.run_id))),
            **store_pictures(store.home, "trained_policy", figures, context.partition_key),
            "warnings": list(plan.warnings),
            **tracked.metadata,
        },
        data_version=dg.DataVersion(run.sha256),
    )


@experiment_asset(key=["rl", "training_curves"], group_name="policies", kinds={"iceberg"}, deps=[POLICY_KEY])
def training_curve(context: dg.AssetExecutionContext, store: dg.ResourceParam[Store]) -> dg.MaterializeResult:
    """Mean reward per step of each rollout, per fold and seed."""
    run = store.policies.read_latest(context.partition_key)
    n_rows = replace_run(store, TRAINING_CURVES, training_curves(store.policies.read_run(run)), run)
    return table_result(store, TRAINING_CURVES, n_rows)


@experiment_asset(key=VERSION_KEY, group_name="policies", kinds={"sqlite"})
def experiment_version(context: dg.AssetExecutionContext, store: dg.ResourceParam[Store]) -> dg.MaterializeResult:
    """Immutable version of the partition: spec, hash and changes since the version before."""
    spec = store.ledger.read(context.partition_key)
    return dg.MaterializeResult(
        metadata={
            "spec_hash": spec.spec_hash,
            "spec": dg.MetadataValue.json(spec.model_dump(mode="json")),
            "changed": dg.MetadataValue.md(markdown_table(version_changes(store.ledger, context.partition_key))),
        },
        data_version=dg.DataVersion(spec.spec_hash),
    )
