"""Prices of a panel's names, from the bars behind the panel, with which orders are sized, and returns of SPY."""

import numpy as np
import polars as pl

from nvtrader_pipelines.components.arrays import FloatArray
from nvtrader_pipelines.execution.orders import PanelPrices
from nvtrader_pipelines.market.history import bar_arrays, forward_fill
from nvtrader_pipelines.market.panel import MarketPanel
from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.iceberg.warehouse import Warehouse
from nvtrader_pipelines.storage.tables import CLEAN_BARS, RETURNS

SPY = "SPY"  # exchange-traded fund of the S&P 500, the index of US stocks
COLUMNS = ("session", "symbol", "open", "close", "adj_close", "volume")


def read_prices(tables: Warehouse, panel: MarketPanel) -> PanelPrices:
    """Read opens, closes and volumes on a panel's sessions, at its snapshot of the bars.

    Prices are adjusted for splits and dividends like the panel's returns: a share is one of today's, with dividends
    reinvested. A bar without an open takes its close as open, as in the panel.

    Raises:
        StorageError: if the snapshot has expired, or there are no bars of the panel's names.
    """
    snapshot = panel.snapshot_ids.get(CLEAN_BARS.name)
    bars = tables.read(CLEAN_BARS, {"source": [panel.source]}, COLUMNS, snapshot)
    bars = bars.filter(pl.col("symbol").is_in(panel.symbols), pl.col("session") <= panel.sessions[-1].item())
    if bars.is_empty():
        raise StorageError(
            f"silver.clean_bars has no bar of {', '.join(panel.symbols)} from source {panel.source!r}, so "
            "orders cannot be sized; run the market job"
        )
    days = panel.calendar.sessions(min(bars["session"].to_numpy().min(), panel.sessions[0]), panel.sessions[-1])
    factor = pl.col("adj_close") / pl.col("close")
    adjusted = bars.with_columns(
        open=pl.coalesce(pl.col("open") * factor, "adj_close"), volume=pl.col("volume") / factor
    )
    arrays = bar_arrays(adjusted, ("open", "adj_close", "volume"), days, panel.symbols)
    closes = arrays["adj_close"]
    begin = int(np.searchsorted(days, panel.sessions[0]))
    return PanelPrices(
        opens=arrays["open"][begin:],
        closes=closes[begin:],
        last_closes=forward_fill(closes)[begin:],
        volumes=arrays["volume"][begin:],
    )


def read_spy_returns(tables: Warehouse, source: str, sessions: pl.Series) -> FloatArray | None:
    """Read close-to-close returns (T,) of SPY in sessions of a market, NaN without a bar; None if it has no SPY."""
    bars = tables.read(RETURNS, {"source": [source], "symbol": [SPY]}, ["session", "close_return"])
    if bars.is_empty():
        return None
    returns = pl.DataFrame({"session": sessions}).join(bars, on="session", how="left", maintain_order="left")
    return returns["close_return"].to_numpy().astype(np.float64)
