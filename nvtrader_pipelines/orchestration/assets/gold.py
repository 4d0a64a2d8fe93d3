"""Gold: returns, point-in-time features, regimes, and the panels that pin their snapshots."""

from datetime import UTC, datetime

import dagster as dg

from nvtrader_pipelines.figures import regimes_figures
from nvtrader_pipelines.market.features import compute_features
from nvtrader_pipelines.market.regimes import SliceAndMergeRegimeParams, regime_labels
from nvtrader_pipelines.market.returns import bar_returns
from nvtrader_pipelines.orchestration.partitions import all_partitions, partition_years, yearly_asset
from nvtrader_pipelines.orchestration.reports import store_pictures, table_result
from nvtrader_pipelines.runs.ingestion import pin_panels
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.tables import CLEAN_BARS, FEATURES, MARKET_PANEL, REGIMES, RETURNS

RETURNS_KEY, FEATURES_KEY = dg.AssetKey(["gold", "returns"]), dg.AssetKey(["gold", "features"])
REGIMES_KEY = dg.AssetKey(["gold", "regimes"])


@yearly_asset(key=RETURNS_KEY, group_name="gold", kinds={"iceberg", "polars"}, deps=[["silver", "clean_bars"]])
def returns(context: dg.AssetExecutionContext, store: dg.ResourceParam[Store]) -> dg.MaterializeResult:
    """Simple returns per symbol and session from aligned prices; missing returns are not filled."""
    rows = bar_returns(store.tables.read(CLEAN_BARS), store.read_calendars())
    n_rows = store.tables.replace_years(RETURNS, rows, partition_years(context))
    return table_result(store, RETURNS, n_rows)


@yearly_asset(key=FEATURES_KEY, group_name="gold", kinds={"iceberg", "polars"}, deps=[RETURNS_KEY])
def features(context: dg.AssetExecutionContext, store: dg.ResourceParam[Store]) -> dg.MaterializeResult:
    """Point-in-time features per symbol and session, from data known at that close."""
    rows = compute_features(store.tables.read(RETURNS), calendars=store.read_calendars())
    n_rows = store.tables.replace_years(FEATURES, rows, partition_years(context))
    return table_result(store, FEATURES, n_rows)


@dg.asset(
    key=["gold", "market_panel"],
    group_name="gold",
    kinds={"iceberg", "numpy"},
    deps=[all_partitions(key) for key in (RETURNS_KEY, FEATURES_KEY)],
    code_version="1",
)
def market_panel(context: dg.AssetExecutionContext, store: dg.ResourceParam[Store]) -> dg.MaterializeResult:
    """Market panel per source: its size and the pinned snapshots of bronze, silver and gold."""
    panels = pin_panels(store.tables, datetime.now(UTC))
    context.log.info(panels.summary)
    return table_result(store, MARKET_PANEL, panels.n_panels, {"left_out": panels.left_out})


@dg.asset(
    key=REGIMES_KEY, group_name="gold", kinds={"iceberg", "scipy"}, deps=[all_partitions(RETURNS_KEY)], code_version="1"
)
def market_regimes(context: dg.AssetExecutionContext, store: dg.ResourceParam[Store]) -> dg.MaterializeResult:
    """Regime of every session, labeled with hindsight: for evaluation, never for observations."""
    params = SliceAndMergeRegimeParams()
    labels = regime_labels(store.tables.read(RETURNS), params)
    store.tables.replace(REGIMES, labels.rows, {})
    context.log.info(labels.summary)
    report = {"left_out": labels.left_out, "params": params.model_dump(mode="json")}
    figures = regimes_figures(labels.rows, store.read_calendars())
    pictures = store_pictures(store.home, "regimes", figures)
    return table_result(store, REGIMES, len(labels.rows), {**report, **pictures})
