"""Resources that assets ask for."""

from pathlib import Path

import dagster as dg

from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.warehouse import Warehouse


class WarehouseResource(dg.ConfigurableResource):
    """The data and the warehouse of one home folder."""

    root: str

    @property
    def home(self) -> Home:
        """Where everything lies."""
        return Home(Path(self.root))

    def open(self) -> Warehouse:
        """The tables."""
        return Warehouse(self.home)
