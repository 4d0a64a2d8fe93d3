"""Clean bars, and the quarantine of refused ones."""

from nvtrader_pipelines.market import tables as market
from nvtrader_pipelines.storage.table import Table

CLEAN_BARS = Table("silver", "clean_bars", market.CLEAN_BARS, ("year",))
QUARANTINE = Table("silver", "quarantine", market.QUARANTINE, ("year",))
