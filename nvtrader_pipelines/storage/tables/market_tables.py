"""Market: bars as delivered (bronze), cleaned (silver), and what is computed from them (gold)."""

from nvtrader_pipelines.market import tables as market
from nvtrader_pipelines.market.features import feature_schema
from nvtrader_pipelines.storage.table import Table

BARS = Table("bronze", "bars", market.BARS, ("year",))
DELIVERIES = Table("bronze", "deliveries", market.DELIVERIES)
CLEAN_BARS = Table("silver", "clean_bars", market.CLEAN_BARS, ("year",))
QUARANTINE = Table("silver", "quarantine", market.QUARANTINE, ("year",))
RETURNS = Table("gold", "returns", market.RETURNS, ("year",))
FEATURES = Table("gold", "features", feature_schema(), ("year",))
REGIMES = Table("gold", "regimes", market.REGIMES)
MARKET_PANEL = Table("gold", "market_panel", market.PANELS)
