"""Documented queries over a million steps against DuckDB on plain Parquet files."""

import re
from collections.abc import Callable
from pathlib import Path
from statistics import median

import duckdb
import polars as pl
import pyarrow.parquet as pq
from polars.testing import assert_frame_equal

from benchmarks.claim import Goal, median_ratio, report, time_rounds
from benchmarks.storage_rows import RUN, action_logs, equity_curves, reward_decomposition, scratch_store
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.table import Table
from nvtrader_pipelines.storage.tables import ACTION_LOGS, EQUITY_CURVES, REWARD_DECOMPOSITION
from nvtrader_pipelines.storage.views.published_file import read_query
from nvtrader_pipelines.storage.views.publishing import publish
from nvtrader_pipelines.storage.views.view_definitions import BY_ASSET, quote_literal

N_STEPS = 1_000_000
N_ROUNDS = 7
ROWS: dict[Table, Callable[[int], pl.DataFrame]] = {
    EQUITY_CURVES: equity_curves,
    ACTION_LOGS: action_logs,
    REWARD_DECOMPOSITION: reward_decomposition,
}
QUERIES = {
    "return": "Return per fold and policy",
    "drawdown": "Worst drawdown per policy",
    "reward_by_term": "Reward by term",
    "turnover": "Turnover by name",
}


def main() -> None:
    """Run each query on the published views and on views of the plain files."""
    page = (Path(__file__).parents[2] / "docs/reference/sql.md").read_text()
    texts = re.findall(r"## (.+)\n\n```sql\n([^`]+)```", page)
    queries = {name: dict(texts)[title] for name, title in QUERIES.items()}
    with scratch_store() as (folder, store), duckdb.connect() as plain:
        plain.execute("CREATE SCHEMA rl")
        for table in ROWS:
            _write(store, plain, table, folder / f"{table.table}.parquet")
        plain.execute(BY_ASSET.format(prefix=""))
        with duckdb.connect(str(publish(store)), read_only=True) as views:
            for name, query in queries.items():
                _compare(name, query, views, plain)


def _write(store: Store, plain: duckdb.DuckDBPyConnection, table: Table, path: Path) -> None:
    rows = ROWS[table](N_STEPS)
    store.tables.replace(table, rows, RUN)
    pq.write_table(rows.to_arrow(), path, compression="zstd")
    plain.execute(f"CREATE VIEW {table.name} AS FROM read_parquet({quote_literal(str(path))})")


def _compare(name: str, query: str, views: duckdb.DuckDBPyConnection, plain: duckdb.DuckDBPyConnection) -> None:
    assert_frame_equal(read_query(views, query), read_query(plain, query), check_row_order=False)
    implementations = {
        "views": lambda _: read_query(views, query),
        "plain": lambda _: read_query(plain, query),
    }
    seconds = time_rounds(implementations, N_ROUNDS)
    report(
        f"storage_query_{name}",
        median(seconds["views"]) * 1e3,
        "ms",
        Goal(ratio_at_most=1.3),
        ratio=median_ratio(seconds, "views", "plain"),
        note=f"wall clock of a documented query over {N_STEPS:,} steps on the published views of the Iceberg tables, "
        f"against the same on files of pq.write_table(compression='zstd'); DuckDB {duckdb.__version__}, connections "
        f"open, files in the page cache, same rows back, median of {N_ROUNDS} rounds in turn",
    )


if __name__ == "__main__":
    main()
