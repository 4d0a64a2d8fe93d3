"""Rows of a few tables, and Python scripts in separate processes."""

import datetime as dt
import os
import subprocess
import sys

import polars as pl

from nvtrader_pipelines.storage.table import Table

AT = dt.datetime(2024, 1, 2, 22, tzinfo=dt.UTC)
SPEC_HASH = "5" * 64


def conform(table: Table, rows: pl.DataFrame) -> pl.DataFrame:
    """Conform rows to a table's columns and types; missing columns are null."""
    return rows.with_columns(pl.lit(None).alias(name) for name in table.schema if name not in rows.columns).select(
        pl.col(name).cast(kind) for name, kind in table.schema.items()
    )


def bar_rows(table: Table, years, value=1.0, n_rows=3, column="adj_close", source="sample") -> pl.DataFrame:
    """Build `n_rows` bars per year, all with the same value."""
    rows = [(source, f"N{i}", dt.date(year, 1, 2 + i), year, value) for year in years for i in range(n_rows)]
    names = ["source", "symbol", "session", "year", column]
    return conform(table, pl.DataFrame(rows, schema=names, orient="row"))


def run_rows(table: Table, run_id, n_rows=3, **columns) -> pl.DataFrame:
    """Build rows of a run."""
    rows = pl.DataFrame({"step": range(n_rows)}).with_columns(
        spec_hash=pl.lit(SPEC_HASH), run_id=pl.lit(run_id), **{name: pl.lit(value) for name, value in columns.items()}
    )
    return conform(table, rows.drop("step") if "step" not in table.schema else rows)


def run_keys(run_id):
    return {"spec_hash": [SPEC_HASH], "run_id": [run_id]}


def start(script: str, *arguments, **options) -> subprocess.Popen:
    """Start a Python process that runs a script."""
    return subprocess.Popen(
        [sys.executable, "-c", script, *map(str, arguments)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        **options,
    )
