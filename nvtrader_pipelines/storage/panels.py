"""Cache of pinned market panels."""

from dataclasses import dataclass, field

from nvtrader_pipelines.experiments.spec import MarketChoice
from nvtrader_pipelines.market.panel import MarketPanel
from nvtrader_pipelines.storage.iceberg.warehouse import Warehouse
from nvtrader_pipelines.storage.medallion import pinned_snapshots, read_panel


@dataclass(frozen=True)
class Panels:
    """Pinned panels of a home; a panel is read again only after its pinned snapshots change."""

    tables: Warehouse
    known: dict[MarketChoice, MarketPanel] = field(default_factory=dict)

    def read(self, choice: MarketChoice) -> MarketPanel:
        """Read the panel of a market choice at the currently pinned snapshots.

        Raises:
            StorageError: if the source has no panel.
            ValueError: if the bars of these symbols do not form a panel.
        """
        snapshots, known = pinned_snapshots(self.tables, choice.source), self.known.get(choice)
        if known is None or known.snapshot_ids != snapshots:
            known = read_panel(self.tables, choice.source, choice.symbols, choice.max_gap, snapshots)
            self.known[choice] = known
        return known
