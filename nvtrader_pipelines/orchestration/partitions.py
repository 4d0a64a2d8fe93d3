"""Partitions: years of sessions for the market, experiment versions for the rest."""

import warnings
from collections.abc import Sequence
from functools import partial

import dagster as dg

from nvtrader_pipelines.experiments.spec import ExperimentSpec
from nvtrader_pipelines.market.calendar import NEW_YORK
from nvtrader_pipelines.market.ingest import FIRST_YEAR
from nvtrader_pipelines.storage.ledger import Ledger

# Dagster marks this parameter as beta; tests cover its use here.
warnings.filterwarnings("ignore", message="Parameter `backfill_policy`", category=dg.BetaWarning)

YEARS = dg.TimeWindowPartitionsDefinition(
    start="1990",
    fmt="%Y",
    cron_schedule="0 0 1 1 *",
    end_offset=1,  # the current year is a partition too
    timezone=NEW_YORK.time_zone.key,
)
EXPERIMENTS = dg.DynamicPartitionsDefinition(name="experiment")  # name@hash8

ONE_RUN = dg.BackfillPolicy.single_run()  # one year costs as much as the whole history
# Experiments have no policy: `multi_run(1)` would launch runs of a range, which have no partition key.
yearly_asset = partial(dg.asset, partitions_def=YEARS, backfill_policy=ONE_RUN, code_version="1")
experiment_asset = partial(dg.asset, partitions_def=EXPERIMENTS, code_version="1")

RANGE_START, RANGE_END = "dagster/asset_partition_range_start", "dagster/asset_partition_range_end"


def all_partitions(key: dg.AssetKey | Sequence[str]) -> dg.AssetDep:
    """Dependency on every year or every experiment of an asset."""
    return dg.AssetDep(key, partition_mapping=dg.AllPartitionMapping())


def whole_history_tags() -> dict[str, str]:
    """Run tags that materialize every year in one run."""
    keys = YEARS.get_partition_keys()
    return {RANGE_START: keys[0], RANGE_END: keys[-1]}


def partition_years(context: dg.AssetExecutionContext) -> list[int]:
    """Years of the partitions of this run; the first partition includes all earlier years."""
    years = [int(key) for key in context.partition_keys]
    first = int(YEARS.get_first_partition_key() or years[0])
    return [*range(FIRST_YEAR, first), *years] if first in years else years


def remove_unused_partitions(
    instance: dg.DagsterInstance, ledger: Ledger, specs: Sequence[ExperimentSpec]
) -> list[str]:
    """Remove partitions of versions that neither ran nor belong to these specs; return their keys."""
    used = {variant.partition_key for spec in specs for variant in spec.variants()}
    used.update(ledger.runs(with_deleted=True)["partition_key"])
    unused = [key for key in instance.get_dynamic_partitions(EXPERIMENTS.name or "") if key not in used]
    for key in unused:
        instance.delete_dynamic_partition(EXPERIMENTS.name or "", key)
    return unused
