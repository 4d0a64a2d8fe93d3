"""Resources that assets ask for."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import dagster as dg
import duckdb
from dagster_duckdb import DuckDBResource

from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.views import create_views
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


class ViewsResource(DuckDBResource):
    """dagster-duckdb's connection, in memory, with the views of the published file."""

    root: str

    @contextmanager
    def get_connection(self) -> Iterator[duckdb.DuckDBPyConnection]:
        """A connection on which every table is a view over its live files."""
        with super().get_connection() as connection:
            create_views(connection, Warehouse(Home(Path(self.root))))
            yield connection
