"""Bars as delivered, and the deliveries."""

from nvtrader_pipelines.market import tables as market
from nvtrader_pipelines.storage.table import Table

BARS = Table("bronze", "bars", market.BARS, ("year",))
DELIVERIES = Table("bronze", "deliveries", market.DELIVERIES)
