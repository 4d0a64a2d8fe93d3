import os
import threading

import duckdb
import pytest

from nvtrader_pipelines.experiments.spec import ExperimentSpec
from nvtrader_pipelines.storage.tables import CLEAN_BARS, RUNS, TABLES
from nvtrader_pipelines.storage.views import view_definitions
from nvtrader_pipelines.storage.views.publishing import publish
from nvtrader_pipelines.storage.views.queries import query_views
from tests.storage.table_rows import bar_rows, run_rows, start

pytestmark = pytest.mark.slow

READER = """
import duckdb, os, sys
n_opens = 0
while not os.path.exists(sys.argv[2]):
    with duckdb.connect(sys.argv[1], read_only=True) as connection:
        values = connection.sql("SELECT DISTINCT adj_close, count(*) OVER () FROM silver.clean_bars").fetchall()
    assert len(values) == 1 and values[0][1] == 9, values
    n_opens += 1
    if n_opens == 1:
        print("reading", flush=True)
print(n_opens)
"""


@pytest.mark.nightly
@pytest.mark.slow
def test_views_can_be_opened_at_any_moment_while_published(store, home):
    years = [2018, 2019, 2020]
    store.tables.replace_years(CLEAN_BARS, bar_rows(CLEAN_BARS, years, 0.0), years)
    publish(store)
    stop = home.root / "stop"
    with start(READER, home.duckdb_file, stop) as reader:
        assert reader.stdout.readline() == "reading\n"
        for version in range(1, 9):
            store.tables.replace_years(CLEAN_BARS, bar_rows(CLEAN_BARS, years, float(version)), years)
            publish(store)
        stop.touch()
        n_opens = int(reader.stdout.readline())
    assert reader.returncode == 0
    assert n_opens > 3


def test_concurrent_publishers_succeed(store, home):
    threads = [threading.Thread(target=publish, args=(store,)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert query_views(store, "SELECT count(*) FROM rl.runs").item() == 0


def test_publish_removes_the_wal_of_a_killed_client(store, home):
    publish(store)
    script = """
import duckdb, sys, time
connection = duckdb.connect(sys.argv[1])
connection.execute("CREATE TABLE mine AS SELECT 1 AS x")
print("open", flush=True)
time.sleep(60)
"""
    with start(script, home.duckdb_file) as client:
        assert client.stdout.readline() == "open\n"
        publish(store)  # not blocked by the client's lock
        client.kill()
    (home.warehouse / "nvtrader.duckdb.wal").write_bytes(b"left by a killed client")
    publish(store)
    assert query_views(store, "SELECT count(*) FROM rl.runs").item() == 0
    assert not (home.warehouse / "nvtrader.duckdb.wal").exists()


def published(home):
    """Definition of each published view."""
    with duckdb.connect(str(home.duckdb_file), read_only=True) as connection:
        rows = connection.execute("SELECT schema_name || '.' || view_name, sql FROM duckdb_views() WHERE NOT internal")
        return dict(rows.fetchall())


@pytest.mark.parametrize("is_touched", [False, True], ids=["as published", "written by a client"])
def test_published_again_equals_published_at_once(is_touched, store, home, monkeypatch):
    years = [2018, 2019]
    store.tables.replace_years(CLEAN_BARS, bar_rows(CLEAN_BARS, [2018]), [2018])
    for run_id in ("a" * 64, "b" * 64):
        store.tables.replace(RUNS, run_rows(RUNS, run_id, 1, snapshot_ids="{}"), {"run_id": [run_id]})
    publish(store)
    if is_touched:
        with duckdb.connect(str(home.duckdb_file)) as client:
            client.execute("CREATE OR REPLACE VIEW silver.returns AS SELECT 1 AS mine")
    planned = []
    plan = view_definitions.view_body
    monkeypatch.setattr(
        view_definitions, "view_body", lambda tables, table: planned.append(table) or plan(tables, table)
    )
    store.tables.replace_years(CLEAN_BARS, bar_rows(CLEAN_BARS, years), years)
    store.tables.replace(RUNS, run_rows(RUNS, "b" * 64, 0), {"run_id": ["b" * 64]})
    publish(store)
    assert set(planned) == (set(TABLES) if is_touched else {CLEAN_BARS, RUNS})
    again = published(home)
    home.duckdb_file.unlink()
    publish(store)
    assert again == published(home)
    assert query_views(store, "SELECT count(*) FROM silver.clean_bars").item() == 6


def test_damaged_file_with_its_old_times_is_published_again(store, home):
    publish(store)
    times = home.duckdb_file.stat()
    content = bytearray(home.duckdb_file.read_bytes())
    content[4096:-4096] = bytes(len(content) - 8192)
    with home.duckdb_file.open("r+b") as file:
        file.write(content)
    os.utime(home.duckdb_file, ns=(times.st_atime_ns, times.st_mtime_ns))
    publish(store)
    assert query_views(store, "SELECT count(*) FROM rl.runs").item() == 0


def test_publish_removes_files_of_a_killed_publisher(store, home):
    publish(store)
    left = home.warehouse / ".nvtrader.duckdb.123.tmp"
    left.write_bytes(b"half")
    publish(store)
    assert not left.exists()


def test_mirrored_ledger_changes_with_the_next_publication(store, home):
    publish(store)
    store.ledger.register(ExperimentSpec(name="a"))
    assert query_views(store, "SELECT count(*) FROM ledger.versions").item() == 0
    publish(store)
    assert query_views(store, "SELECT count(*) FROM ledger.versions").item() == 1
