"""Home whose tables are in an object store."""

import json
import subprocess
from datetime import UTC, datetime, timedelta

import pytest

from nvtrader_pipelines.service.doctor import check_databases
from nvtrader_pipelines.storage.errors import StorageError, UnavailableError
from nvtrader_pipelines.storage.file_problems import has_table_files
from nvtrader_pipelines.storage.files import write_atomically
from nvtrader_pipelines.storage.home import Home, create_home
from nvtrader_pipelines.storage.iceberg.damaged_tables import find_damaged_tables
from nvtrader_pipelines.storage.iceberg.upkeep import tidy
from nvtrader_pipelines.storage.moving_files import move_table_files
from nvtrader_pipelines.storage.object_store import client, delete_object, list_objects, write_object
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.tables import CLEAN_BARS, EQUITY_CURVES
from nvtrader_pipelines.storage.views.publishing import publish
from nvtrader_pipelines.storage.views.queries import query_views
from tests.homes import nvtrader, table_contents
from tests.storage.table_rows import run_keys, run_rows, start
from tests.storage.test_processes import PRELUDE

pytestmark = pytest.mark.nightly


def test_home_in_object_store_has_the_same_tables_as_in_files(bucket, tmp_path, fast_nvtrader, monkeypatch):
    contents = []
    for name in ("objects", "files"):
        home = Home(tmp_path / name)
        assert nvtrader(home, "init", str(home.root), command=fast_nvtrader).returncode == 0
        finished = nvtrader(home, "ingest", command=fast_nvtrader)
        assert finished.returncode == 0, finished.stderr
        contents.append(table_contents(home))
        counted = nvtrader(home, "sql", "--format", "json", f"SELECT count(*) AS n FROM {CLEAN_BARS.name}")
        assert json.loads(counted.stdout) == [{"n": len(contents[0][CLEAN_BARS.name])}], counted.stderr
        if name == "objects":
            assert {path.name for path in home.iceberg.iterdir()} == {".locks"}
            monkeypatch.delenv("NVTRADER_WAREHOUSE_URI")
    assert contents[0].keys() == contents[1].keys()
    for name, frame in contents[0].items():
        assert frame.equals(contents[1][name]), name


def test_doctor_leaves_no_trace_where_tables_come(bucket, store):
    assert [row.problem for row in check_databases(store)] == ["", "", ""]
    assert not has_table_files(store.home)
    store.tables.replace(EQUITY_CURVES, run_rows(EQUITY_CURVES, "run", 5, equity=1.0), run_keys("run"))
    assert has_table_files(store.home)


def test_home_with_tables_refuses_a_store_to_which_they_were_not_moved(bucket, server, store, monkeypatch):
    monkeypatch.delenv("NVTRADER_WAREHOUSE_URI")
    store.tables.replace(EQUITY_CURVES, run_rows(EQUITY_CURVES, "run", 5, equity=1.0), run_keys("run"))
    monkeypatch.setenv("NVTRADER_WAREHOUSE_URI", bucket)
    with pytest.raises(StorageError, match="nvtrader migrate"):
        Store(store.home).tables.read(EQUITY_CURVES)
    server.psql("CREATE DATABASE unmoved")
    monkeypatch.setenv("NVTRADER_DATABASE_URL", server.get_uri("unmoved"))
    with pytest.raises(StorageError, match="nvtrader migrate"):
        Store(store.home).tables.read(EQUITY_CURVES)


@pytest.mark.parametrize("path", ["warehouse/iceberg/../../data/audit.jsonl", "../other/file.jsonl", "data"])
def test_query_reads_no_object_beside_the_tables(bucket, store, path):
    store.tables.replace(EQUITY_CURVES, run_rows(EQUITY_CURVES, "run", 5, equity=1.0), run_keys("run"))
    write_object(f"{bucket}/data/audit.jsonl", b"{}")
    write_object(f"{bucket.removesuffix('team')}other/file.jsonl", b"{}")
    publish(store)
    assert query_views(store, f"SELECT count(*) AS n FROM {EQUITY_CURVES.name}")["n"].to_list() == [5]
    with pytest.raises(StorageError):
        query_views(store, f"SELECT * FROM read_text('{bucket}/{path}')")


def test_upkeep_deletes_objects_that_no_snapshot_needs(bucket, store):
    for equity in (1.0, 2.0):
        store.tables.replace(EQUITY_CURVES, run_rows(EQUITY_CURVES, "run", 5, equity=equity), run_keys("run"))
    orphan = f"{bucket}/warehouse/iceberg/rl/equity_curves/data/orphan.parquet"
    write_object(orphan, b"of a killed writer")
    assert tidy(store.tables, datetime.now(UTC)).n_files == 0  # it may belong to a commit under way
    report = tidy(store.tables, datetime.now(UTC) + timedelta(days=30))
    assert report.n_snapshots >= 1
    assert orphan not in list_objects(bucket)
    assert store.tables.read(EQUITY_CURVES)["equity"].to_list() == [2.0] * 5


def test_missing_and_cut_objects_are_found_as_damage(bucket, store):
    store.tables.replace(EQUITY_CURVES, run_rows(EQUITY_CURVES, "run", 5, equity=1.0), run_keys("run"))
    assert list(find_damaged_tables(store.tables)) == []
    (data,) = (uri for uri in list_objects(bucket) if uri.endswith(".parquet"))
    write_object(data, b"PAR1")
    assert [error.path for error in find_damaged_tables(store.tables)] == [data]
    delete_object(data)
    with pytest.raises(StorageError, match="lacks the file"):
        store.tables.read(EQUITY_CURVES)


def test_store_that_stops_leaves_the_table_as_it_was(bucket, s3, store, monkeypatch):
    store.tables.replace(EQUITY_CURVES, run_rows(EQUITY_CURVES, "run", 5, equity=1.0), run_keys("run"))
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    client.cache_clear()
    (row,) = [row for row in check_databases(store) if row.check == "object store"]
    assert "start the store" in row.problem
    for use in (
        lambda: store.tables.read(EQUITY_CURVES),
        lambda: store.tables.replace(EQUITY_CURVES, run_rows(EQUITY_CURVES, "run", 5, equity=2.0), run_keys("run")),
    ):
        with pytest.raises(UnavailableError, match="start the store"):
            use()
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3.variables["AWS_ENDPOINT_URL"])
    client.cache_clear()
    assert store.tables.read(EQUITY_CURVES)["equity"].to_list() == [1.0] * 5
    assert [row.problem for row in check_databases(store)] == ["", "", ""]


def test_next_command_goes_on_after_the_store_was_killed(bucket, s3, store, home):
    store.tables.replace(EQUITY_CURVES, run_rows(EQUITY_CURVES, "run", 50, equity=0.0), run_keys("run"))
    script = (
        PRELUDE
        + """
tables = Store(home).tables
for version in range(1, 10_000):
    tables.replace(EQUITY_CURVES, run_rows(EQUITY_CURVES, "run", 50, equity=float(version)), run_keys("run"))
    print(version, flush=True)
"""
    )
    with start(script, home.root, stderr=subprocess.PIPE) as writer:
        for _ in range(5):
            last = int(writer.stdout.readline())
        s3.kill()
        printed, message = writer.communicate(timeout=120)
    last = max([last, *map(int, printed.split())])
    assert (writer.returncode, "start the store" in message) == (1, True)
    with pytest.raises(UnavailableError):
        store.tables.read(EQUITY_CURVES)
    s3.restart()
    rows = store.tables.read(EQUITY_CURVES)
    assert (len(rows), rows["equity"].n_unique()) == (50, 1)
    assert rows["equity"][0] in {last, last + 1}  # a commit may be stored that was not confirmed
    store.tables.replace(EQUITY_CURVES, run_rows(EQUITY_CURVES, "run", 7, equity=0.5), run_keys("run"))
    assert store.tables.read(EQUITY_CURVES)["equity"].to_list() == [0.5] * 7
    tidy(store.tables, datetime.now(UTC) + timedelta(days=30))
    data = [uri for uri in list_objects(bucket) if uri.endswith(".parquet")]
    assert len(data) == store.tables.describe(EQUITY_CURVES).n_files


def test_tables_move_to_the_object_store_and_back(bucket, tmp_path, monkeypatch):
    home = create_home(tmp_path / "home")
    monkeypatch.delenv("NVTRADER_WAREHOUSE_URI")
    before = Store(home)
    before.tables.replace(EQUITY_CURVES, run_rows(EQUITY_CURVES, "run", 5, equity=1.0), run_keys("run"))
    policy = home.policies / "version" / "run" / "fold-0-seed-1.zip"
    write_atomically(policy, b"policy")
    files = {path for path in home.iceberg.rglob("*.*") if path.is_file() and path.parent.name != ".locks"}
    monkeypatch.setenv("NVTRADER_WAREHOUSE_URI", bucket)
    moved = [(row.table, row.n_rows, row.is_new) for row in move_table_files(home, back=False)]
    assert moved == [("files of tables", len(files), True), ("policies, searches, audit", 1, True)]
    assert len(list_objects(bucket)) == len(files) + 1
    assert [row.is_new for row in move_table_files(home, back=False)] == [False, False]
    for path in files:
        path.unlink()
    after = Store(home)
    assert after.tables.read(EQUITY_CURVES)["equity"].to_list() == [1.0] * 5
    after.tables.replace(EQUITY_CURVES, run_rows(EQUITY_CURVES, "run", 7, equity=2.0), run_keys("run"))
    policy.unlink()
    move_table_files(home, back=True)
    assert policy.read_bytes() == b"policy"
    monkeypatch.delenv("NVTRADER_WAREHOUSE_URI")
    assert Store(home).tables.read(EQUITY_CURVES)["equity"].to_list() == [2.0] * 7
    (home.iceberg / "rl/equity_curves/data").rename(tmp_path / "data")
    write_object(next(uri for uri in list_objects(bucket) if "/metadata/" in uri), b"other")
    monkeypatch.setenv("NVTRADER_WAREHOUSE_URI", bucket)
    with pytest.raises(StorageError, match="another content"):
        move_table_files(home, back=False)
