"""DuckDB views over the tables' live files, in memory or in one published file that any client opens."""

import os
from pathlib import Path

import duckdb
import polars as pl
from pyiceberg.types import IcebergType, ListType

from nvtrader_pipelines.components.ids import short_id
from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.files import locked
from nvtrader_pipelines.storage.iceberg.commits import live_files
from nvtrader_pipelines.storage.iceberg.warehouse import Warehouse
from nvtrader_pipelines.storage.ledger import Ledger
from nvtrader_pipelines.storage.ledger.schema import TABLES as LEDGER_TABLES
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.table import Table
from nvtrader_pipelines.storage.tables import (
    ACTION_LOGS,
    EQUITY_CURVES,
    REWARD_DECOMPOSITION,
    RUNS,
    TABLES,
    TRAJECTORIES,
)

STORAGE_VERSION = "v1.0.0"  # older clients open it too
DUCKDB_TYPES = {
    "string": "VARCHAR",
    "int": "INTEGER",
    "long": "BIGINT",
    "float": "FLOAT",
    "double": "DOUBLE",
    "boolean": "BOOLEAN",
    "date": "DATE",
    "timestamptz": "TIMESTAMPTZ",
}
BY_ASSET = """
CREATE OR REPLACE VIEW {prefix}rl.actions_by_asset AS
SELECT spec_hash, run_id, policy, kind, fold, step, session,
       unnest(symbols) AS symbol, unnest(target_weights) AS target_weight,
       unnest(executed_weights) AS executed_weight, unnest(trades) AS trade
FROM {prefix}rl.action_logs
"""

BY_RUN = (TRAJECTORIES, EQUITY_CURVES, ACTION_LOGS, REWARD_DECOMPOSITION)


def quoted(text: str) -> str:
    """A SQL string literal; paths and names are the only text that enters a view's definition."""
    return "'" + text.replace("'", "''") + "'"


def identifier(name: str) -> str:
    """A SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


def duckdb_type(kind: IcebergType) -> str:
    """The DuckDB type of an Iceberg type."""
    return duckdb_type(kind.element_type) + "[]" if isinstance(kind, ListType) else DUCKDB_TYPES[str(kind)]


def view_body(tables: Warehouse, table: Table) -> str:
    """A query over exactly the live files of the current snapshot, columns found by Iceberg field id.

    Raises:
        StorageError: if the table holds row-level deletes, which this package never writes.
    """
    iceberg = tables.find(table)
    fields = (iceberg.schema() if iceberg else table.iceberg_schema()).fields
    paths = live_files(table, iceberg)
    if not paths:
        columns = ", ".join(f"NULL::{duckdb_type(f.field_type)} AS {identifier(f.name)}" for f in fields)
        return f"SELECT {columns} WHERE false"
    entries = ", ".join(
        f"{f.field_id}: {{name: {quoted(f.name)}, type: {quoted(duckdb_type(f.field_type))}, default_value: NULL}}"
        for f in fields
    )
    files = ", ".join(quoted(path) for path in paths)
    columns = ", ".join(identifier(f.name) for f in fields)
    return f"SELECT {columns} FROM read_parquet([{files}], schema=MAP {{{entries}}})"


def create_views(connection: duckdb.DuckDBPyConnection, store: Store, database: str = "") -> None:
    """A schema per namespace with a view per table, views of every single run, and the ledger as it is now."""
    prefix = f"{identifier(database)}." if database else ""
    for namespace in dict.fromkeys(table.namespace for table in TABLES):
        connection.execute(f"CREATE SCHEMA IF NOT EXISTS {prefix}{identifier(namespace)}")
    for table in TABLES:
        name = f"{prefix}{identifier(table.namespace)}.{identifier(table.table)}"
        connection.execute(f"CREATE OR REPLACE VIEW {name} AS {view_body(store.tables, table)}")
        for column in table.schema.columns:
            connection.execute(f"COMMENT ON COLUMN {name}.{identifier(column.name)} IS {quoted(column.doc)}")
    connection.execute(BY_ASSET.format(prefix=prefix))
    for run_id in store.tables.read(RUNS, columns=["run_id"])["run_id"]:
        for table, view in zip(BY_RUN, run_views(run_id), strict=True):
            rows = f"FROM {prefix}{table.name} WHERE starts_with(run_id, {quoted(short_id(run_id))})"
            connection.execute(f"CREATE OR REPLACE VIEW {prefix}main.{identifier(view)} AS {rows}")
    mirror_ledger(connection, store.ledger, prefix)


def run_views(run_id: str) -> list[str]:
    """The views of one run: `rl_<kind>_run_<first 8 digits>`; two runs that begin alike share them."""
    return [f"rl_{table.table}_run_{short_id(run_id)}" for table in BY_RUN]


def mirror_ledger(connection: duckdb.DuckDBPyConnection, ledger: Ledger, prefix: str = "") -> None:
    """Copy the ledger's tables into the schema `ledger`, with the meaning of their columns."""
    connection.execute(f"CREATE SCHEMA IF NOT EXISTS {prefix}ledger")
    rows = ledger.tables()
    for table in LEDGER_TABLES:
        name = f"{prefix}ledger.{identifier(table.name)}"
        connection.register("ledger_rows", rows[table.name].to_arrow())
        connection.execute(f"CREATE OR REPLACE TABLE {name} AS FROM ledger_rows")
        connection.unregister("ledger_rows")
        for column in table.columns:
            connection.execute(f"COMMENT ON COLUMN {name}.{identifier(column.name)} IS {quoted(column.doc or '')}")


def publish(store: Store) -> Path:
    """Build `warehouse/nvtrader.duckdb` aside and rename it over the old one: readers never wait and never see half."""
    path = store.home.duckdb_file
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with locked(path.with_suffix(".lock")):
        for left in path.parent.glob(f".{path.name}.*.tmp*"):  # by a publisher that was killed
            left.unlink()
        with duckdb.connect() as connection:
            connection.execute(
                f"ATTACH {quoted(str(temporary))} AS nvtrader (STORAGE_VERSION {quoted(STORAGE_VERSION)})"
            )
            connection.begin()  # one write of the file, not one per statement
            create_views(connection, store, "nvtrader")
            connection.commit()
            connection.execute("CHECKPOINT nvtrader")
            connection.execute("DETACH nvtrader")
        stale = path.with_name(f"{path.name}.wal")
        stale.unlink(missing_ok=True)  # left by a client that had the old file open to write; it would block every open
        temporary.replace(path)
        stale.unlink(missing_ok=True)
    return path


def read_query(connection: duckdb.DuckDBPyConnection, query: str) -> pl.DataFrame:
    """The rows of a query; none for a statement that gives none."""
    found = connection.sql(query)
    if found is None:
        return pl.DataFrame()
    rows = found.to_arrow_table()
    return pl.DataFrame(pl.from_arrow(rows.rename_columns(distinct(rows.column_names))))


def distinct(names: list[str]) -> list[str]:
    """The names with a number behind those that stood before, as a join of two tables gives them."""
    return [name if name not in names[:i] else f"{name}_{names[:i].count(name)}" for i, name in enumerate(names)]


def query_views(store: Store, query: str) -> pl.DataFrame:
    """The rows of a query over the published views.

    Raises:
        StorageError: if nothing is published yet, the query is wrong, or files are missing.
    """
    home = store.home
    if not home.duckdb_file.exists():
        raise StorageError(f"there are no tables yet: {home.duckdb_file} is missing; run `nvtrader materialize` first")
    store.tables.snapshot_id(RUNS)  # refuses a warehouse that was moved or copied: the views would read the old one
    try:
        with duckdb.connect(str(home.duckdb_file), read_only=True) as connection:
            return read_query(connection, query)
    except duckdb.Error as error:
        if "No files found" in str(error):
            raise StorageError(
                f"the views point to files that are not there; the warehouse was moved or files were deleted: put it "
                f"back where it was built, or remove {home.warehouse} and run `nvtrader materialize`"
            ) from error
        said = str(error).partition("\n\nLINE")[0]  # the rest draws an arrow
        raise StorageError(f"the query failed: {' '.join(said.split())}") from error
