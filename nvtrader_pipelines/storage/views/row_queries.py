"""Pages of a run's rows, and rows thinned for drawing, read from the files of that run only."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate
from threading import Lock
from typing import Any

import duckdb
import polars as pl

from nvtrader_pipelines.components.columns import Column, TableSchema
from nvtrader_pipelines.storage.iceberg.commits import plan_files
from nvtrader_pipelines.storage.iceberg.locations import local_path
from nvtrader_pipelines.storage.ledger import LedgerRun
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.table import BY_RUN, Table
from nvtrader_pipelines.storage.tables import ACTION_LOGS, EQUITY_CURVES, REWARD_DECOMPOSITION, TRAJECTORIES
from nvtrader_pipelines.storage.views.published_file import NO_DOWNLOADS, read_objects
from nvtrader_pipelines.storage.views.queries import query_errors
from nvtrader_pipelines.storage.views.view_definitions import parquet_schema

MAX_DRAWN = 10_000  # rows of all curves together, unless four of each are more
CONFIG = {**NO_DOWNLOADS, "threads": 2}  # each decodes a row group at a time
ONE_QUERY = Lock()  # many readers at once take the memory of one
ACCOUNT = ("policy", "kind")
TRAINING = ("phase", "fold", "seed")
ROWS = """
WITH stored AS NOT MATERIALIZED (
    SELECT *, $starts[file_index::BIGINT + 1] + file_row_number AS place
    FROM read_parquet($paths, schema={schema}) {filters}
), run_rows AS {query}
"""  # `place` is the row's number in written order
AS_STORED = "NOT MATERIALIZED (FROM stored)"
BY_EPISODE = """MATERIALIZED (
    SELECT policy, kind, phase, fold, seed, episode, count(*) AS n_steps, sum(reward) AS reward,
           min(session) AS first_session, max(session) AS last_session, arg_max(equity, step) AS equity,
           max(drawdown) AS max_drawdown, bool_or(terminated) AS terminated, min(place) AS place
    FROM stored GROUP BY policy, kind, phase, fold, seed, episode
)"""
THINNED = """, curves AS MATERIALIZED (
    SELECT {curve}, min(place) AS first, max(place) AS last, count(*) AS n FROM run_rows GROUP BY {curve}
), room AS (
    SELECT least($points, greatest(4, $most // count(*))) AS points FROM curves
), parts AS (
    SELECT min(place) AS first_of_part, arg_min(place, {drawn}) AS lowest, arg_max(place, {drawn}) AS highest
    FROM run_rows JOIN curves ON {same_curve} CROSS JOIN room
    GROUP BY {curve_of_rows},
             CASE WHEN n <= points THEN place ELSE (place - first) * (points // 2 - 1) // (last - first + 1) END
), places AS MATERIALIZED (
    SELECT unnest([coalesce(lowest, first_of_part), highest]) AS place FROM parts
    UNION SELECT unnest([first, last]) FROM curves
)
SELECT {columns} FROM run_rows WHERE place IN (FROM places) ORDER BY {curve}, place
"""
EPISODE = TableSchema(
    TRAJECTORIES.schema.only(*ACCOUNT, *TRAINING, "episode"),
    Column("n_steps", pl.Int64, "number of decisions"),
    Column("reward", pl.Float64, "sum of the rewards of its steps"),
    Column("first_session", pl.Date, "session of the first decision"),
    Column("last_session", pl.Date, "session of the last decision"),
    Column("equity", pl.Float64, "equity after the last step, net of costs; 1 at the start"),
    Column("max_drawdown", pl.Float64, "largest loss from the highest equity so far, positive"),
    TRAJECTORIES.schema.only("terminated"),
)


@dataclass(frozen=True)
class RowSource:
    """Rows of a run in a table or summarized from it, and the curves that they draw."""

    table: Table
    schema: TableSchema  # of its rows
    curve: tuple[str, ...]  # columns whose values name a curve
    drawn: str  # value whose extremes thinning keeps, in SQL
    undrawn: tuple[str, ...] = ()  # long columns that are null in thinned rows
    query: str = AS_STORED
    order: str = ""  # of pages; DuckDB reads files in written order


EQUITY_ROWS, TRAJECTORY_ROWS, REWARD_ROWS, ACTION_ROWS = (
    RowSource(table, table.schema.without(*BY_RUN), (*ACCOUNT, *names), drawn, undrawn)
    for table, names, drawn, undrawn in (
        (EQUITY_CURVES, (), "equity", ()),
        (TRAJECTORIES, TRAINING, "reward", ("action", "info")),
        (REWARD_DECOMPOSITION, ("term",), "contribution", ()),
        (ACTION_LOGS, (), "list_inner_product(trades, trades)", ()),
    )
)
EPISODE_ROWS = RowSource(
    TRAJECTORIES, EPISODE, (*ACCOUNT, *TRAINING), "reward", query=BY_EPISODE, order="ORDER BY place"
)


def read_row_page(
    store: Store, source: RowSource, run: LedgerRun, equal: Mapping[str, Any], limit: int, after: int
) -> pl.DataFrame:
    """Read rows of a run in written order; episodes in the order of their first steps.

    Args:
        store: store of the home.
        source: rows to read.
        run: the run.
        equal: values of columns of the table.
        limit: number of rows at most.
        after: number of rows to pass over.

    Raises:
        StorageError: if a file is missing or damaged.
    """
    query = f"SELECT {', '.join(source.schema)} FROM run_rows {source.order} LIMIT $limit OFFSET $after"
    return _read(store, source, run, equal, query, {"limit": limit, "after": after})


def read_thinned_rows(
    store: Store, source: RowSource, run: LedgerRun, equal: Mapping[str, Any], points: int
) -> pl.DataFrame:
    """Read the rows that draw a run's curves: of each, the ends and the extremes of equal parts.

    Args:
        store: store of the home.
        source: rows to read.
        run: the run.
        equal: values of columns of the table.
        points: number of rows of a curve at most; fewer where all curves together exceed `MAX_DRAWN`.

    Raises:
        StorageError: if a file is missing or damaged.
    """
    columns = (f"NULL AS {name}" if name in source.undrawn else name for name in source.schema)
    query = THINNED.format(
        drawn=source.drawn,
        curve=", ".join(source.curve),
        curve_of_rows=", ".join(f"run_rows.{name}" for name in source.curve),
        same_curve=" AND ".join(f"run_rows.{name} IS NOT DISTINCT FROM curves.{name}" for name in source.curve),
        columns=", ".join(columns),
    )
    return _read(store, source, run, equal, query, {"points": points, "most": MAX_DRAWN})


def _read(
    store: Store,
    source: RowSource,
    run: LedgerRun,
    equal: Mapping[str, Any],
    query: str,
    values: Mapping[str, Any],
) -> pl.DataFrame:
    iceberg = store.tables.find(source.table)
    where = {"spec_hash": [run.spec_hash], "run_id": [run.run_id]}
    files = [] if iceberg is None else [task.file for task in plan_files(source.table, iceberg, where)]
    if iceberg is None or not files:
        return source.schema.to_frame()
    rows = ROWS.format(
        schema=parquet_schema(iceberg.schema().fields),
        filters=" AND ".join(["WHERE true", *(f"{name} = ${name}" for name in equal)]),
        query=source.query,
    )
    paths = [local_path(iceberg, file.file_path) for file in files]
    starts = list(accumulate((file.record_count for file in files[:-1]), initial=0))
    with query_errors(store.home), ONE_QUERY, duckdb.connect(config=CONFIG) as connection:
        read_objects(connection, store.home)
        return connection.sql(rows + query, params={**values, **equal, "paths": paths, "starts": starts}).pl()
