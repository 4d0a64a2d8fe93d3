"""Silver: one valid bar per symbol and session; refused rows with their reasons."""

from collections.abc import Iterator
from datetime import UTC, datetime

import dagster as dg

from nvtrader_pipelines.market.cleaning import clean
from nvtrader_pipelines.orchestration.partitions import ONE_RUN, YEARS, partition_years
from nvtrader_pipelines.orchestration.reports import table_result
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.tables import BARS, CLEAN_BARS, DELIVERIES, QUARANTINE

BRONZE = dg.AssetKey(["bronze", "bars"])


@dg.multi_asset(
    specs=[
        dg.AssetSpec(
            ["silver", "clean_bars"],
            deps=[BRONZE],
            description="One adjusted and validated bar per symbol and session.",
            group_name="silver",
            kinds={"iceberg", "polars", "pandera"},
            code_version="1",
        ),
        dg.AssetSpec(
            ["silver", "quarantine"],
            deps=[BRONZE],
            description="Refused rows with rule, value, file and line.",
            group_name="silver",
            kinds={"iceberg", "polars"},
            code_version="1",
        ),
    ],
    partitions_def=YEARS,
    backfill_policy=ONE_RUN,
    name="refine",
)
def refine(context: dg.AssetExecutionContext, store: dg.ResourceParam[Store]) -> Iterator[dg.MaterializeResult]:
    """Split the delivered bars into valid and refused ones."""
    years = partition_years(context)
    bars, deliveries = store.tables.read(BARS), store.tables.read(DELIVERIES)
    good, refused = clean(bars, deliveries, datetime.now(UTC), store.read_calendars())
    n_good = store.tables.replace_years(CLEAN_BARS, good, years)
    n_refused = store.tables.replace_years(QUARANTINE, refused, years)
    yield table_result(store, CLEAN_BARS, n_good)
    by_rule = dict(refused.group_by("rule").len().sort("rule").iter_rows())
    yield table_result(store, QUARANTINE, n_refused, {"by_rule": by_rule})
