"""Returns, features, regimes and panels, computed from clean bars."""

from nvtrader_pipelines.market import tables as market
from nvtrader_pipelines.market.features import feature_schema
from nvtrader_pipelines.storage.table import Table

RETURNS = Table("gold", "returns", market.RETURNS, ("year",))
FEATURES = Table("gold", "features", feature_schema(), ("year",))
REGIMES = Table("gold", "regimes", market.REGIMES)
MARKET_PANEL = Table("gold", "market_panel", market.PANELS)
