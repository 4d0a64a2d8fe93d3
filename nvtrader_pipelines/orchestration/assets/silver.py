"""Silver: one valid bar per symbol and session, and every refused row with its reason."""

from collections.abc import Iterator
from datetime import UTC, datetime

import dagster as dg
import polars as pl

from nvtrader_pipelines.market.cleaning import clean
from nvtrader_pipelines.orchestration.partitions import ONE_RUN, YEARS, years_of
from nvtrader_pipelines.orchestration.reports import written
from nvtrader_pipelines.orchestration.resources import WarehouseResource
from nvtrader_pipelines.storage.tables import BARS, CLEAN_BARS, DELIVERIES, QUARANTINE

BRONZE = dg.AssetKey(["bronze", "bars"])


@dg.multi_asset(
    specs=[
        dg.AssetSpec(
            ["silver", "clean_bars"],
            deps=[BRONZE],
            description="One bar per symbol and session of the exchange, adjusted and validated.",
            group_name="silver",
            kinds={"iceberg", "polars", "pandera"},
            code_version="1",
        ),
        dg.AssetSpec(
            ["silver", "quarantine"],
            deps=[BRONZE],
            description="Every refused row with its rule, value, file and line.",
            group_name="silver",
            kinds={"iceberg", "polars"},
            code_version="1",
        ),
    ],
    partitions_def=YEARS,
    backfill_policy=ONE_RUN,
    name="refine",
)
def refine(context: dg.AssetExecutionContext, warehouse: WarehouseResource) -> Iterator[dg.MaterializeResult]:
    """Sort the delivered bars into valid ones and refused ones."""
    lake, years = warehouse.open(), years_of(context)
    good, refused = clean(lake.read(BARS), lake.read(DELIVERIES), datetime.now(UTC).date())
    n_good = lake.replace_years(CLEAN_BARS, good, years)
    n_refused = lake.replace_years(QUARANTINE, refused, years)
    yield written(lake, CLEAN_BARS, n_good)
    rules = refused.group_by("rule").agg(pl.len().alias("rows")).sort("rule")
    yield written(lake, QUARANTINE, n_refused, {"by_rule": dict(rules.iter_rows())})
