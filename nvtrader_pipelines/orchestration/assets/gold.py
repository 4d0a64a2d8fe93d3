"""Gold: returns, point-in-time features, and the panel that pins their snapshots."""

from datetime import UTC, datetime

import dagster as dg

from nvtrader_pipelines.market.features import compute_features
from nvtrader_pipelines.market.returns import bar_returns
from nvtrader_pipelines.orchestration.partitions import ALL_YEARS, ONE_RUN, YEARS, years_of
from nvtrader_pipelines.orchestration.reports import OWNERS, table_metadata, written
from nvtrader_pipelines.orchestration.resources import WarehouseResource
from nvtrader_pipelines.storage.medallion import pin_panels
from nvtrader_pipelines.storage.tables import CLEAN_BARS, FEATURES, MARKET_PANEL, RETURNS

RETURNS_KEY, FEATURES_KEY = dg.AssetKey(["gold", "returns"]), dg.AssetKey(["gold", "features"])


@dg.asset(
    key=RETURNS_KEY,
    group_name="gold",
    kinds={"iceberg", "polars"},
    owners=OWNERS,
    deps=[["silver", "clean_bars"]],
    partitions_def=YEARS,
    backfill_policy=ONE_RUN,
    code_version="1",
    metadata=table_metadata(RETURNS),
)
def returns(context: dg.AssetExecutionContext, warehouse: WarehouseResource) -> dg.MaterializeResult:
    """Simple returns per symbol and session, from prices aligned first; none is ever filled."""
    lake = warehouse.open()
    n_rows = lake.replace_years(RETURNS, bar_returns(lake.read(CLEAN_BARS)), years_of(context))
    return written(lake, RETURNS, n_rows)


@dg.asset(
    key=FEATURES_KEY,
    group_name="gold",
    kinds={"iceberg", "polars"},
    owners=OWNERS,
    deps=[RETURNS_KEY],
    partitions_def=YEARS,
    backfill_policy=ONE_RUN,
    code_version="1",
    metadata=table_metadata(FEATURES),
)
def features(context: dg.AssetExecutionContext, warehouse: WarehouseResource) -> dg.MaterializeResult:
    """Point-in-time features per symbol and session: each uses what was known at that close."""
    lake = warehouse.open()
    n_rows = lake.replace_years(FEATURES, compute_features(lake.read(RETURNS)), years_of(context))
    return written(lake, FEATURES, n_rows)


@dg.asset(
    key=["gold", "market_panel"],
    group_name="gold",
    kinds={"iceberg", "numpy"},
    owners=OWNERS,
    deps=[dg.AssetDep(key, partition_mapping=ALL_YEARS) for key in (RETURNS_KEY, FEATURES_KEY)],
    code_version="1",
    metadata=table_metadata(MARKET_PANEL),
)
def market_panel(context: dg.AssetExecutionContext, warehouse: WarehouseResource) -> dg.MaterializeResult:
    """One row per source: what its panel holds, and the snapshots of bronze, silver and gold it is made of."""
    lake = warehouse.open()
    panels = pin_panels(lake, datetime.now(UTC))
    context.log.info(panels.summary)
    return written(lake, MARKET_PANEL, panels.n_panels, {"left_out": panels.left_out})
