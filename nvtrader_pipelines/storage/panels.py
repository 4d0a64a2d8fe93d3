"""Pinned panels of a home, each read once."""

from dataclasses import dataclass, field

from nvtrader_pipelines.experiments.spec import MarketChoice
from nvtrader_pipelines.market.panel import MarketPanel
from nvtrader_pipelines.storage.iceberg.warehouse import Warehouse
from nvtrader_pipelines.storage.medallion import read_panel


@dataclass(frozen=True)
class Panels:
    """The pinned panels of one home, each read once."""

    lake: Warehouse
    known: dict[MarketChoice, MarketPanel] = field(default_factory=dict)

    def of(self, choice: MarketChoice) -> MarketPanel:
        """The panel of a choice of the market.

        Raises:
            StorageError: if the source has no panel.
            ValueError: if its bars do not make one of these names.
        """
        if choice not in self.known:
            self.known[choice] = read_panel(self.lake, choice.source, choice.symbols, choice.max_gap)
        return self.known[choice]
