"""Versions: spec of each experiment partition and its changes since the version before."""

import dagster as dg

from nvtrader_pipelines.orchestration.partitions import EXPERIMENTS
from nvtrader_pipelines.orchestration.reports import markdown_table
from nvtrader_pipelines.storage.spec_versions import version_changes
from nvtrader_pipelines.storage.store import Store

VERSION_KEY = dg.AssetKey(["policies", "experiment_version"])


@dg.asset(
    key=VERSION_KEY,
    group_name="policies",
    kinds={"sqlite"},
    partitions_def=EXPERIMENTS,
    code_version="1",
)
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
