"""Panel of the sample market, built in memory from the shipped prices."""

import datetime as dt
from functools import cache

from nvtrader_pipelines.market.calendar import NEW_YORK
from nvtrader_pipelines.market.cleaning import clean
from nvtrader_pipelines.market.features import compute_features
from nvtrader_pipelines.market.ingest import ingest
from nvtrader_pipelines.market.panel import MarketPanel, build_panel
from nvtrader_pipelines.market.returns import bar_returns
from nvtrader_pipelines.market.sources import SampleSource

_DELIVERED_AT = dt.datetime(2023, 1, 1, tzinfo=dt.UTC)  # after the sample's last session, and independent of the clock


@cache
def sample_panel() -> MarketPanel:
    """Panel of the sample source: 20 S&P 500 survivors of 1990 to 2022, adjusted closes only."""
    (delivery,) = SampleSource().deliveries(())
    delivered = ingest(delivery, None, _DELIVERED_AT, NEW_YORK)
    bars, _ = clean(delivered.bars, delivered.delivery_row, _DELIVERED_AT)
    returns = bar_returns(bars)
    return build_panel(returns, compute_features(returns), NEW_YORK)
