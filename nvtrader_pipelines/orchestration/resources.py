"""Resources that assets ask for."""

from pathlib import Path

import dagster as dg
from pydantic import Field

from nvtrader_pipelines.desk.desk import Desk
from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.iceberg.warehouse import Warehouse


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


class DeskResource(dg.ConfigurableResource):
    """Whose account a rebalance moves."""

    account: str = Field(default="paper", description="name of the account: data/accounts/<name>.yaml")
    acknowledge: bool = Field(
        default=False, description="acknowledge soft findings of compliance, which else wait for a person"
    )

    def of(self, warehouse: WarehouseResource) -> Desk:
        """The desk over a warehouse."""
        return Desk.open(warehouse.open(), self.account, by="dagster")
