"""DuckDB views over the current files of the tables."""

import glob
import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import NamedTuple

import duckdb
import polars as pl
from pyiceberg.types import IcebergType, ListType, NestedField

from nvtrader_pipelines.components.text import short_id
from nvtrader_pipelines.evaluation.guard_telemetry import GUARDS
from nvtrader_pipelines.storage.iceberg.commits import live_paths
from nvtrader_pipelines.storage.iceberg.warehouse import Warehouse
from nvtrader_pipelines.storage.ledger import Ledger
from nvtrader_pipelines.storage.ledger.schema import TABLES as LEDGER_TABLES
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.table import Table
from nvtrader_pipelines.storage.tables import RUNS, TABLES
from nvtrader_pipelines.storage.tables.research import ITERATION, SPANS
from nvtrader_pipelines.storage.tables.rl import ACTION_LOGS, VIEWED_BY_RUN, run_views

BY_ASSET = """
SELECT spec_hash, run_id, policy, kind, fold, step, session,
       unnest(symbols) AS symbol, unnest(target_weights) AS target_weight,
       unnest(executed_weights) AS executed_weight, unnest(trades) AS trade
FROM {prefix}rl.action_logs
"""

BY_GUARDS = """
SELECT spec_hash, run_id, policy, kind, fold, step, session, unnest(guards)
FROM (SELECT spec_hash, run_id, policy, kind, fold, step, session, json_transform(info, {structure}).guards AS guards
      FROM {prefix}rl.trajectories)
WHERE guards IS NOT NULL
"""

BY_ITERATION = """
SELECT span ->> '$.attributes.session' AS session_id, (span ->> '$.attributes.proposal')::BIGINT AS proposal,
       (span ->> '$.attributes.trial')::BIGINT AS trial_id, span ->> '$.attributes.mode' AS mode,
       span ->> '$.attributes.status' AS status, (span ->> '$.attributes.sharpe')::DOUBLE AS sharpe,
       (span ->> '$.attributes.n_clips')::BIGINT AS n_clips, (span ->> '$.start_time')::TIMESTAMPTZ AS started_at,
       date_diff('microsecond', started_at, (span ->> '$.end_time')::TIMESTAMPTZ) / 1e6 AS seconds
FROM (SELECT TRY_CAST(unnest(string_split(content, chr(10))) AS JSON) AS span FROM read_text({files}))
WHERE span ->> '$.name' = {iteration}
"""  # without the files it is empty, and a torn line is left out

GUARD_TYPES = {pl.Boolean: "BOOLEAN", pl.Int64: "BIGINT", pl.Float64: "DOUBLE"}

OF_STEP = {
    column.name: column.doc
    for column in ACTION_LOGS.schema.only("spec_hash", "run_id", "policy", "kind", "fold", "step", "session").columns
}
COLUMNS_OF_VIEWS = {  # meanings
    "rl.actions_by_asset": OF_STEP
    | {
        "symbol": "name of the market, or cash",
        "target_weight": "weight decided, a fraction of equity",
        "executed_weight": "weight after the trade",
        "trade": "change from the drifted to the executed weight",
    },
    "rl.guards": OF_STEP
    | {
        "drawdown": "whether the guard on drawdown fired",
        "negative_return": "whether the guard on a negative return fired",
        "turnover": "whether the guard on turnover fired",
        "scale": "factor of the weights by the guard on drawdown; 1 where it did not fire",
        "turnover_penalty": "penalty per unit of turnover in place of the reward's; null where it stayed",
        "n_shutdown": "number of names cut to the probe after a loss",
        "probe": "largest absolute weight of a name that lost lately; null without a loss shutdown",
    },
    SPANS.name: {column.name: column.doc for column in SPANS.schema.columns},
}
VIEWS = [*COLUMNS_OF_VIEWS, *(f"ledger.{table.name}" for table in LEDGER_TABLES)]


def quote_literal(text: str) -> str:
    """Quote a text as a SQL literal, for the paths and names in view definitions."""
    return "'" + text.replace("'", "''") + "'"


def quote_identifier(name: str) -> str:
    """Quote a name as a SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


def duckdb_type(kind: IcebergType) -> str:
    """DuckDB type of an Iceberg type; DuckDB knows the names of Iceberg's types, too."""
    return f"{kind.element_type}[]" if isinstance(kind, ListType) else str(kind)


def view_body(tables: Warehouse, table: Table) -> str:
    """Query over the files of the current snapshot, with columns matched by field id.

    Raises:
        StorageError: if the table holds row-level deletes; this package never writes any.
    """
    iceberg = tables.find(table)
    fields = (iceberg.schema() if iceberg else table.iceberg_schema()).fields
    paths = live_paths(table, iceberg)
    if not paths:
        columns = ", ".join(f"NULL::{duckdb_type(f.field_type)} AS {quote_identifier(f.name)}" for f in fields)
        return f"SELECT {columns} WHERE false"
    files = ", ".join(quote_literal(path) for path in paths)
    columns = ", ".join(quote_identifier(f.name) for f in fields)
    return f"SELECT {columns} FROM read_parquet([{files}], schema={parquet_schema(fields)})"


def parquet_schema(fields: Iterable[NestedField]) -> str:
    """Argument `schema` of `read_parquet` that matches columns by field id; those that a file lacks are null."""
    return f"MAP {{{', '.join(map(_schema_entry, fields))}}}"


def _schema_entry(field: NestedField) -> str:
    name, kind = quote_literal(field.name), quote_literal(duckdb_type(field.field_type))
    return f"{field.field_id}: {{name: {name}, type: {kind}, default_value: NULL}}"


def _comment_column(connection: duckdb.DuckDBPyConnection, relation: str, column: str, doc: str) -> None:
    connection.execute(f"COMMENT ON COLUMN {relation}.{quote_identifier(column)} IS {quote_literal(doc)}")


def create_views(
    connection: duckdb.DuckDBPyConnection, store: Store, database: str = "", before: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Create a view per table and per run, and copy the current ledger.

    Args:
        connection: to DuckDB.
        store: whose tables the views read.
        database: name of the attached database; by default the connection's own.
        before: what this function returned when it created the views that the database has.

    Returns:
        What each view follows from, by name; a view that follows from the same as before is left as it is.
    """
    prefix = f"{quote_identifier(database)}." if database else ""
    views = {view.name: view for view in _views(store, prefix)}
    before, after = before or {}, {name: view.source for name, view in views.items()}
    for namespace in dict.fromkeys(table.namespace for table in TABLES):
        connection.execute(f"CREATE SCHEMA IF NOT EXISTS {prefix}{quote_identifier(namespace)}")
    for name in before.keys() - after.keys():
        connection.execute(f"DROP VIEW {prefix}{name}")
    for name, view in views.items():
        if before.get(name) != view.source:
            connection.execute(f"CREATE OR REPLACE VIEW {prefix}{name} AS {view.body()}")
            for column, doc in view.comments.items():
                _comment_column(connection, f"{prefix}{name}", column, doc)
    mirror_ledger(connection, store.ledger, prefix)
    return after


class View(NamedTuple):
    """View to create: its quoted name, what it follows from, its query, and the meaning of its columns."""

    name: str
    source: str
    body: Callable[[], str]
    comments: Mapping[str, str] = {}


def _views(store: Store, prefix: str) -> Iterator[View]:
    code = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()
    files = store.tables.metadata_files()
    for table in TABLES:
        comments = {column.name: column.doc for column in table.schema.columns}
        source = json.dumps([code, str(store.home.root), files.get(table.name), str(table.schema), comments])
        name = f"{quote_identifier(table.namespace)}.{quote_identifier(table.table)}"
        yield View(
            name,
            short_id(hashlib.sha256(source.encode()).hexdigest()),
            partial(view_body, store.tables, table),
            comments,
        )
    guards = {field.name: GUARD_TYPES[field.dtype.base_type()] for field in GUARDS.fields}
    spans, iteration = quote_literal(f"{glob.escape(str(store.home.spans_file))}*"), quote_literal(ITERATION)
    queries = {
        "rl.actions_by_asset": BY_ASSET.format(prefix=prefix),
        "rl.guards": BY_GUARDS.format(prefix=prefix, structure=quote_literal(json.dumps({"guards": guards}))),
        SPANS.name: BY_ITERATION.format(files=spans, iteration=iteration),
    }
    meanings, deleted = dict(COLUMNS_OF_VIEWS), store.ledger.deleted_ids()
    for run_id in store.tables.read(RUNS, columns=["run_id"])["run_id"]:
        if run_id not in deleted:
            start = quote_literal(short_id(run_id))
            for table, view in zip(VIEWED_BY_RUN, run_views(run_id), strict=True):
                name = f"main.{quote_identifier(view)}"
                queries[name] = f"FROM {prefix}{table.name} WHERE starts_with(run_id, {start})"
                meanings[name] = {column.name: column.doc for column in table.schema.columns}
    for name, query in queries.items():
        comments = meanings[name]
        source = json.dumps([query, comments])
        yield View(name, short_id(hashlib.sha256(source.encode()).hexdigest()), lambda query=query: query, comments)


def mirror_ledger(connection: duckdb.DuckDBPyConnection, ledger: Ledger, prefix: str = "") -> None:
    """Copy the ledger's tables and column comments into the schema `ledger`."""
    connection.execute(f"CREATE SCHEMA IF NOT EXISTS {prefix}ledger")
    rows = ledger.tables()
    for table in LEDGER_TABLES:
        name = f"{prefix}ledger.{quote_identifier(table.name)}"
        connection.register("ledger_rows", rows[table.name].to_arrow())
        connection.execute(f"CREATE OR REPLACE TABLE {name} AS FROM ledger_rows")
        connection.unregister("ledger_rows")
        for column in table.columns:
            _comment_column(connection, name, column.name, column.doc or "")
