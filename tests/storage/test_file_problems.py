import contextlib
import sqlite3
import subprocess
import sys

import pytest

from nvtrader_pipelines.storage.errors import DamagedFileError
from nvtrader_pipelines.storage.file_problems import HALF_MADE, mlflow_problem, read_state, sqlite_problem

WRITE = "import sqlite3, sys; sqlite3.connect(sys.argv[1], timeout=0.0).execute('BEGIN IMMEDIATE')"


@pytest.fixture(params=["wal", "delete"])
def database(request, tmp_path):
    """Path of a database, and an open connection to it."""
    path = tmp_path / "some.db"
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute(f"PRAGMA journal_mode={request.param}")
    connection.execute("CREATE TABLE numbers (n)")
    connection.executemany("INSERT INTO numbers VALUES (zeroblob(?))", [(5000,)] * 5)
    yield path, connection
    connection.close()


def test_check_keeps_the_locks_of_an_open_transaction(database):
    path, connection = database
    connection.execute("BEGIN IMMEDIATE")
    assert sqlite_problem(path) is None
    other = subprocess.run([sys.executable, "-c", WRITE, str(path)], capture_output=True, text=True, check=False)
    assert "database is locked" in other.stderr


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (lambda old: b"", "is empty"),
        (lambda old: b"x" * 9000, "not a database"),
        (lambda old: old[:50], "malformed"),
        (lambda old: old[:8192], "malformed"),
        (lambda old: old, None),
    ],
)
def test_damage_is_found(database, content, problem):
    path, connection = database
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    path.write_bytes(content(path.read_bytes()))
    found = sqlite_problem(path)
    assert found is None if problem is None else problem in (found or "")


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ("SELECT 1", None),
        ("CREATE TABLE _alembic_tmp_experiments (n)", HALF_MADE),
        ("DROP TABLE alembic_version", HALF_MADE),
        ("DELETE FROM alembic_version", HALF_MADE),
        ("DELETE FROM experiments", HALF_MADE),
        ("DROP TABLE runs", HALF_MADE),
    ],
)
def test_half_made_mlflow_database_is_found(change, problem, tmp_path):
    path = tmp_path / "mlflow.db"
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        for table in ("alembic_version", "experiments", "runs"):
            connection.execute(f"CREATE TABLE {table} (n)")
            connection.execute(f"INSERT INTO {table} VALUES (1)")
        connection.execute(change)
    assert mlflow_problem(path) == problem


def test_damaged_page_of_mlflow_database_is_found(database):
    path, connection = database
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    path.write_bytes(path.read_bytes()[:4096] + b"x" * 4096 + path.read_bytes()[8192:])
    assert sqlite_problem(path) is None
    assert mlflow_problem(path) not in {None, HALF_MADE}


@pytest.mark.parametrize(
    ("content", "problem"), [(b"", "is empty"), (bytes(9), "is empty"), (b'{"a": ', "JSON"), (b"[1]", "JSON")]
)
def test_damaged_state_is_refused_with_its_remedy(content, problem, tmp_path):
    path = tmp_path / "market.json"
    assert read_state(path) is None
    path.write_bytes(content)
    with pytest.raises(DamagedFileError) as refused:
        read_state(path)
    assert problem in refused.value.problem
    assert f"rm {path}" in refused.value.remedy
    assert path.read_bytes() == content
