"""Bronze: bars as delivered."""

from datetime import UTC, datetime

import dagster as dg

from nvtrader_pipelines.market.sources import SourceUnavailable
from nvtrader_pipelines.orchestration.partitions import partition_years, yearly_asset
from nvtrader_pipelines.orchestration.rebalance_steps import retry_on
from nvtrader_pipelines.orchestration.reports import table_result
from nvtrader_pipelines.runs.ingestion import ingest_market
from nvtrader_pipelines.runs.market_state import require_same_calendars
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.tables import BARS


@yearly_asset(key=["bronze", "bars"], group_name="bronze", kinds={"iceberg", "polars"}, pool="bronze")
def bars(context: dg.AssetExecutionContext, store: dg.ResourceParam[Store]) -> dg.MaterializeResult:
    """Bars of every source as delivered, text unchanged; an ingested file is not read again."""
    require_same_calendars(store)
    with retry_on(SourceUnavailable):
        ingested = ingest_market(store.tables, partition_years(context), datetime.now(UTC))
    context.log.info(ingested.summary)
    return table_result(store, BARS, ingested.n_rows, {"files_read": ingested.files_read, "refused": ingested.refused})
