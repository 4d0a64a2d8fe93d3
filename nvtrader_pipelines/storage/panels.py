"""Market panels at the snapshots that are pinned."""

from dataclasses import dataclass, field

from nvtrader_pipelines.experiments.spec import MarketChoice
from nvtrader_pipelines.market.panel import MarketPanel
from nvtrader_pipelines.storage.iceberg.warehouse import Warehouse
from nvtrader_pipelines.storage.medallion import pinned_snapshots, read_panel


@dataclass(frozen=True)
class Panels:
    """Pinned panels of one home, each read again only when other snapshots are pinned."""

    tables: Warehouse
    known: dict[MarketChoice, MarketPanel] = field(default_factory=dict)

    def of(self, choice: MarketChoice) -> MarketPanel:
        """Panel of a market choice on the snapshots that are pinned now.

        Raises:
            StorageError: if the source has no panel.
            ValueError: if its bars do not make one of these names.
        """
        snapshots, known = pinned_snapshots(self.tables, choice.source), self.known.get(choice)
        if known is None or known.snapshot_ids != snapshots:
            known = read_panel(self.tables, choice.source, choice.symbols, choice.max_gap, snapshots)
            self.known[choice] = known
        return known
