"""Home whose ledger and catalog are in Postgres."""

import json
import os
import signal
import subprocess
import time

import polars as pl
import pytest

from nvtrader_pipelines.service.doctor import check_databases
from nvtrader_pipelines.storage.backups.writing import write_backup
from nvtrader_pipelines.storage.errors import StorageError, UnavailableError
from nvtrader_pipelines.storage.file_problems import has_catalog
from nvtrader_pipelines.storage.home import Home, create_home
from nvtrader_pipelines.storage.moving import move_databases
from nvtrader_pipelines.storage.specs import read_experiment
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.tables import CLEAN_BARS, EQUITY_CURVES
from tests.homes import SPEC, nvtrader, table_contents
from tests.storage.ledger.run_rows import RUN_ID, event, run_row
from tests.storage.table_rows import run_keys, run_rows, start
from tests.storage.test_processes import PRELUDE, WRITERS

pytestmark = pytest.mark.nightly


def restart(server):
    """Start a killed server again, which first recovers; `pg_ctl` waits ten seconds only."""
    for _ in range(60):
        try:
            server.ensure_postgres_running()
            server.psql("SELECT 1")
        except subprocess.SubprocessError:
            time.sleep(1)
        else:
            return


def test_home_in_postgres_has_the_same_tables_as_in_files(server, tmp_path, fast_nvtrader, monkeypatch):
    server.psql("CREATE DATABASE sample")
    contents = []
    for name in ("files", "postgres"):
        home = Home(tmp_path / name)
        assert nvtrader(home, "init", str(home.root), command=fast_nvtrader).returncode == 0
        if name == "postgres":
            home.settings_file.write_text(f'database_url = "{server.get_uri("sample")}"\n')
        key = Store(home).ledger.register(read_experiment(home.experiments / "ppo-growth.yaml"))
        finished = nvtrader(home, "ingest", command=fast_nvtrader)
        assert finished.returncode == 0, finished.stderr
        contents.append(table_contents(home))
    assert not home.catalog.exists()
    assert not home.ledger.exists()
    assert contents[0].keys() == contents[1].keys()
    for name, frame in contents[0].items():
        assert frame.equals(contents[1][name]), name
    listed = json.loads(nvtrader(home, "experiments", "list", "--json", command=fast_nvtrader).stdout)
    assert [row["partition_key"] for row in listed if row["registered_at"]] == [key]
    counted = nvtrader(home, "sql", "--format", "json", f"SELECT count(*) AS n FROM {CLEAN_BARS.name}")
    assert json.loads(counted.stdout) == [{"n": len(contents[0][CLEAN_BARS.name])}]
    manifest = write_backup(Store(home), tmp_path / "home.tar", lambda *_: None)
    assert len(manifest.outside) == 2
    assert sum(name.endswith(".parquet") for name in manifest.files) >= Store(home).tables.describe(CLEAN_BARS).n_files


def test_concurrent_writers_lose_and_double_no_commit(database, bucket, store, home):
    names = [f"writer-{number}" for number in range(8)]
    with start(WRITERS, home.root, 25, *names) as writers:  # each commits its own rows and shared ones
        writers.communicate(timeout=1_200)
    assert writers.returncode == 0
    rows = store.tables.read(EQUITY_CURVES)
    assert rows.filter(pl.col("run_id") != "contended")["equity"].to_list() == [24.0] * 400
    contended = rows.filter(pl.col("run_id") == "contended")
    assert (len(contended), contended["policy"].n_unique(), contended["equity"].n_unique()) == (50, 1, 1)
    assert store.tables.load(EQUITY_CURVES).current_snapshot().sequence_number >= 400


def test_next_command_goes_on_after_the_server_was_killed(database, server, store, home):
    store.ledger.register(SPEC)
    script = (
        PRELUDE
        + """
tables = Store(home).tables
for version in range(1, 10_000):
    tables.replace(EQUITY_CURVES, run_rows(EQUITY_CURVES, "run", 50, equity=float(version)), run_keys("run"))
    print(version, flush=True)
"""
    )
    with start(script, home.root, stderr=subprocess.DEVNULL) as writer:
        for _ in range(5):
            last = int(writer.stdout.readline())
        os.kill(server.get_pid(), signal.SIGKILL)
        last = max([last, *map(int, writer.stdout.read().split())])
    assert writer.returncode == 1
    with pytest.raises(UnavailableError):
        store.tables.read(EQUITY_CURVES)
    restart(server)
    rows = store.tables.read(EQUITY_CURVES)
    assert len(rows) == 50
    assert rows["equity"].unique().item() in {last, last + 1}  # a commit may be stored that was not confirmed
    store.tables.replace(EQUITY_CURVES, run_rows(EQUITY_CURVES, "run", 7, equity=0.5), run_keys("run"))
    assert store.tables.read(EQUITY_CURVES)["equity"].to_list() == [0.5] * 7
    assert store.ledger.read(SPEC.partition_key) == SPEC


def test_doctor_names_a_missing_database_and_a_wrong_password(database, server, store, home, monkeypatch):
    assert [row.problem for row in check_databases(store)] == ["", "", ""]
    monkeypatch.setenv("NVTRADER_DATABASE_URL", server.get_uri("no_such"))
    assert all("createdb" in row.problem for row in check_databases(store))
    settings = server.pgdata / "pg_hba.conf"
    before = settings.read_text()
    server.psql("CREATE ROLE ann LOGIN PASSWORD 'right'")
    settings.write_text(f"local all ann scram-sha-256\n{before}")
    server.psql("SELECT pg_reload_conf()")
    monkeypatch.setenv("NVTRADER_DATABASE_URL", database.replace("postgres:@", "ann:swordfish@"))
    rows = check_databases(store)
    assert all("password authentication failed" in row.problem and "swordfish" not in row.problem for row in rows)
    monkeypatch.setenv("PGPASSWORD", "right")
    monkeypatch.setenv("NVTRADER_DATABASE_URL", database.replace("postgres:@", "ann@"))
    assert [row.problem for row in check_databases(store)] == ["", "", ""]
    with pytest.raises(UnavailableError, match="permission denied"):
        _ = store.ledger
    settings.write_text(before)
    server.psql("SELECT pg_reload_conf()")


def test_home_moves_to_postgres_and_back(database, server, tmp_path, monkeypatch):
    home = create_home(tmp_path / "home")
    monkeypatch.delenv("NVTRADER_DATABASE_URL")
    before = Store(home)
    for spec in (SPEC, SPEC.model_copy(update={"description": "its child"})):
        before.ledger.register(spec)
    before.ledger.begin(run_row(before.ledger))
    for _ in range(3):
        before.ledger.record_event(event())
    before.tables.replace(EQUITY_CURVES, run_rows(EQUITY_CURVES, "run", 5, equity=1.0), run_keys("run"))
    monkeypatch.setenv("NVTRADER_DATABASE_URL", database)
    moved = {row.table: row for row in move_databases(home, back=False)}
    assert (moved["ledger.versions"].n_rows, moved["ledger.events"].n_rows) == (3, 3)
    assert moved["catalog.iceberg_tables"].n_rows == 1
    assert not any(row.is_new for row in move_databases(home, back=False))  # again: nothing to do
    after = Store(home)
    assert after.ledger.read(SPEC.partition_key) == SPEC
    assert after.tables.read(EQUITY_CURVES).equals(before.tables.read(EQUITY_CURVES))
    after.ledger.record_event(event())  # numbered after those copied
    after.tables.replace(EQUITY_CURVES, run_rows(EQUITY_CURVES, "run", 7, equity=2.0), run_keys("run"))
    with pytest.raises(StorageError, match="other rows"):
        move_databases(home, back=True)
    for path in (*home.warehouse.glob("ledger.db*"), *home.warehouse.glob("catalog.db*")):
        path.rename(tmp_path / path.name)
    move_databases(home, back=True)
    monkeypatch.delenv("NVTRADER_DATABASE_URL")
    assert len(Store(home).ledger.events(RUN_ID)) == 4
    assert Store(home).tables.read(EQUITY_CURVES)["equity"].to_list() == [2.0] * 7


def test_new_database_of_a_home_with_tables_is_refused(database, tmp_path, monkeypatch):
    home = create_home(tmp_path / "home")
    monkeypatch.delenv("NVTRADER_DATABASE_URL")
    Store(home).tables.load(CLEAN_BARS)
    monkeypatch.setenv("NVTRADER_DATABASE_URL", database)
    assert has_catalog(home)
    with pytest.raises(StorageError, match="holds their files"):
        Store(home).tables.read(CLEAN_BARS)
