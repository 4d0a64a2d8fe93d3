"""Concurrent processes, and processes that are killed."""

import datetime as dt
import signal
import subprocess

import polars as pl
import pytest

from nvtrader_pipelines.storage.iceberg.upkeep import tidy
from nvtrader_pipelines.storage.tables import EQUITY_CURVES
from tests.storage.table_rows import run_keys, run_rows, start

PRELUDE = """
import os, sys
from pathlib import Path
from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.tables import EQUITY_CURVES
from nvtrader_pipelines.storage.store import Store
from tests.storage.table_rows import run_rows, run_keys
home = Home(Path(sys.argv[1]))
"""
# Each input line starts a child that rewrites a run endlessly and is killed after that many milliseconds.
KILLER = (
    PRELUDE
    + """
import signal, time
for line in sys.stdin:
    ready, started = os.pipe()
    child = os.fork()
    if child == 0:
        tables = Store(home).tables
        for version in range(1, 10_000):
            tables.replace(EQUITY_CURVES, run_rows(EQUITY_CURVES, "run", 2_000, equity=float(version)), run_keys("run"))
            if version == 1:
                os.write(started, b"x")
    os.close(started)
    os.read(ready, 1)
    time.sleep(int(line) / 1000)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    os.close(ready)
    print("killed", flush=True)
"""
)
# A child that endlessly writes runs as small files and runs upkeep.
TIDIER = KILLER.replace(
    'tables.replace(EQUITY_CURVES, run_rows(EQUITY_CURVES, "run", 2_000, equity=float(version)), run_keys("run"))',
    "rewrite(tables, float(version))",
).replace(
    "import signal, time\n",
    """
import datetime as dt
import signal, time
from nvtrader_pipelines.storage.ledger import Ledger  # imported before the fork
from nvtrader_pipelines.storage.iceberg.upkeep import tidy

def rewrite(tables, version):
    rows = run_rows(EQUITY_CURVES, "run", 2_000, equity=version)
    tables.replace(EQUITY_CURVES, rows.iter_slices(300), run_keys("run"))
    for fold in (1, 2):
        others = run_rows(EQUITY_CURVES, "folds", 5, fold=fold, equity=version)
        tables.replace(EQUITY_CURVES, others, {**run_keys("folds"), "fold": [fold]})
    tidy(tables, dt.datetime.now(dt.UTC) + dt.timedelta(days=30))
""",
)
# A child per name rewrites its own run and a contended one.
WRITERS = (
    PRELUDE
    + """
for name in sys.argv[3:]:
    if os.fork() == 0:
        tables = Store(home).tables
        for version in range(int(sys.argv[2])):
            for run in (name, "contended"):
                rows = run_rows(EQUITY_CURVES, run, 50, equity=float(version), policy=name)
                tables.replace(EQUITY_CURVES, rows, run_keys(run))
        os._exit(0)
for _ in sys.argv[3:]:
    assert os.wait()[1] == 0
"""
)


@pytest.mark.slow
@pytest.mark.parametrize("moments", [(13,), pytest.param((0, 3, 7, 13, 21, 34, 55, 89), marks=pytest.mark.nightly)])
def test_write_killed_at_any_moment_is_all_or_nothing(tables, home, moments):
    tables.replace(EQUITY_CURVES, run_rows(EQUITY_CURVES, "neighbour", equity=7.0), run_keys("neighbour"))
    with start(KILLER, home.root, stdin=subprocess.PIPE) as killer:
        for milliseconds in moments:
            killer.stdin.write(f"{milliseconds}\n")
            killer.stdin.flush()
            assert killer.stdout.readline() == "killed\n"
            rows = tables.read(EQUITY_CURVES, run_keys("run"))
            assert (len(rows), rows["equity"].n_unique()) == (2_000, 1)
            assert tables.read(EQUITY_CURVES, run_keys("neighbour"))["equity"].to_list() == [7.0] * 3
        killer.stdin.close()
    assert killer.returncode == 0
    tables.replace(EQUITY_CURVES, run_rows(EQUITY_CURVES, "run", 10, equity=0.5), run_keys("run"))
    assert tables.read(EQUITY_CURVES, run_keys("run"))["equity"].to_list() == [0.5] * 10


@pytest.mark.slow
@pytest.mark.parametrize("moments", [(75,), pytest.param((5, 40, 75, 110, 145, 180), marks=pytest.mark.nightly)])
def test_upkeep_killed_at_any_moment_is_completed_by_the_next(tables, home, moments):
    tables.replace(EQUITY_CURVES, run_rows(EQUITY_CURVES, "neighbour", equity=7.0), run_keys("neighbour"))
    with start(TIDIER, home.root, stdin=subprocess.PIPE) as killer:
        for milliseconds in moments:
            killer.stdin.write(f"{milliseconds}\n")
            killer.stdin.flush()
            assert killer.stdout.readline() == "killed\n"
            rows = tables.read(EQUITY_CURVES, run_keys("run"))
            assert (len(rows), rows["equity"].n_unique()) == (2_000, 1)
            assert sorted(tables.read(EQUITY_CURVES, run_keys("folds"))["fold"]) == [1] * 5 + [2] * 5
        killer.stdin.close()
    assert killer.returncode == 0
    tidy(tables, dt.datetime.now(dt.UTC) + dt.timedelta(days=30))
    assert len(list(home.iceberg.rglob("*.parquet"))) == tables.describe(EQUITY_CURVES).n_files == 3
    assert tables.read(EQUITY_CURVES, run_keys("neighbour"))["equity"].to_list() == [7.0] * 3


@pytest.mark.slow
def test_concurrent_writers_on_a_new_warehouse_lose_no_rows(tables, home):
    names = ["one", "two", "three"]
    with start(WRITERS, home.root, 3, *names) as writers:
        writers.communicate(timeout=240)
    assert writers.returncode == 0
    rows = tables.read(EQUITY_CURVES)
    for name in names:
        assert rows.filter(pl.col("run_id") == name)["equity"].to_list() == [2.0] * 50
    contended = rows.filter(pl.col("run_id") == "contended")
    assert (len(contended), contended["policy"].n_unique(), contended["equity"].n_unique()) == (50, 1, 1)


def test_file_lock_is_released_when_its_process_dies(home):
    script = """
import sys, time
from pathlib import Path
from nvtrader_pipelines.storage.files import file_lock
with file_lock(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""
    from nvtrader_pipelines.storage.files import file_lock

    path = home.root / "locks" / "one.lock"
    with start(script, path) as holder:
        assert holder.stdout.readline() == "held\n"
        holder.send_signal(signal.SIGKILL)
    with file_lock(path):
        assert path.exists()
