"""Resources of the assets: the store and the desk of an account."""

from pathlib import Path

import dagster as dg
from pydantic import Field

from nvtrader_pipelines.desk.account_access import read_account
from nvtrader_pipelines.desk.desk import Desk
from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.settings import apply_executor
from nvtrader_pipelines.storage.store import Store


class StoreResource(dg.ConfigurableResource):
    """Store of a home folder, opened once per run, step process or tick."""

    root: str

    def create_resource(self, context: dg.InitResourceContext) -> Store:  # noqa: ARG002 - Dagster passes it
        """Open the store, whose parts open on first use, and apply the home's executor."""
        home = Home(Path(self.root))
        apply_executor(home)
        return Store(home)


class DeskResource(dg.ConfigurableResource):
    """Account that a rebalance trades."""

    account: str = Field(default="paper", description="account in data/accounts/<name>.yaml")
    acknowledge: bool = Field(
        default=False,
        description="acknowledge soft compliance findings, as an account with `acknowledge: true` does; otherwise they "
        "wait for a person",
    )

    def of(self, store: Store) -> Desk:
        """Open the desk of the account."""
        return Desk(store, self.account, by="dagster")

    def acknowledges(self, store: Store) -> bool:
        """Whether this run acknowledges soft findings, by its configuration or the account's file."""
        return self.acknowledge or read_account(store.home, self.account).acknowledge
