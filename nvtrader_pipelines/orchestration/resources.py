"""Resources that assets ask for."""

from pathlib import Path

import dagster as dg
from pydantic import Field

from nvtrader_pipelines.desk.desk import Desk
from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.store import Store


class StoreResource(dg.ConfigurableResource):
    """The store of one home folder, opened once in each run, step process or tick."""

    root: str

    def create_resource(self, context: dg.InitResourceContext) -> Store:  # noqa: ARG002 - Dagster passes it
        """Open the store; its parts open on first use."""
        return Store(Home(Path(self.root)))


class DeskResource(dg.ConfigurableResource):
    """Whose account a rebalance moves."""

    account: str = Field(default="paper", description="name of the account: data/accounts/<name>.yaml")
    acknowledge: bool = Field(
        default=False, description="acknowledge soft findings of compliance, which else wait for a person"
    )

    def of(self, store: Store) -> Desk:
        """The desk of the account."""
        return Desk.open(store, self.account, by="dagster")
