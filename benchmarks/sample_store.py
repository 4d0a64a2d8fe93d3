"""Store whose market is a given panel, so that searches run without ingesting prices."""

from dataclasses import dataclass

from nvtrader_pipelines.experiments.spec import MarketChoice
from nvtrader_pipelines.market.panel import MarketPanel
from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.store import Store


@dataclass(frozen=True)
class GivenPanel:
    """Market panel in place of those of a home."""

    panel: MarketPanel

    def read(self, market: MarketChoice) -> MarketPanel:  # noqa: ARG002 - one signature
        """Return the panel."""
        return self.panel


def store_with(home: Home, panel: MarketPanel) -> Store:
    """Return the store of a home, with a panel as every market."""
    store = Store(home)
    vars(store)["panels"] = GivenPanel(panel)  # a cached property: set before its first use
    return store
