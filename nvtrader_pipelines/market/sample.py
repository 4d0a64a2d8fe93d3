"""The sample market, from its shipped prices to its panel, in memory."""

import datetime as dt
from functools import cache

from nvtrader_pipelines.market.cleaning import clean
from nvtrader_pipelines.market.features import compute_features
from nvtrader_pipelines.market.ingest import ingest
from nvtrader_pipelines.market.panel import MarketPanel, build_panel
from nvtrader_pipelines.market.returns import bar_returns
from nvtrader_pipelines.market.sources import SampleSource

_DELIVERED_AT = dt.datetime(2023, 1, 1, tzinfo=dt.UTC)  # after the sample's last session; no clock is read


@cache
def sample_panel() -> MarketPanel:
    """The panel of the sample source: 20 S&P 500 names that all survived 1990 to 2022, adjusted closes only."""
    (delivery,) = SampleSource().deliveries(())
    delivered = ingest(delivery, None, _DELIVERED_AT)
    bars, _ = clean(delivered.bars, delivered.delivery_row, _DELIVERED_AT.date())
    returns = bar_returns(bars)
    return build_panel(returns, compute_features(returns))
