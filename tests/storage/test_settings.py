import os

import pytest

from nvtrader_pipelines.service.doctor import check_databases, check_executor
from nvtrader_pipelines.storage.backups.writing import write_backup
from nvtrader_pipelines.storage.errors import StorageError, UnavailableError
from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.ledger.database import ledger_url
from nvtrader_pipelines.storage.settings import LEDGER_VARIABLE, apply_executor, database_url, read_settings

SECRET = "correct-horse-battery-staple"
VARIABLE = "NVTRADER_DATABASE_URL"
CLOSED = f"postgresql://me:{SECRET}@127.0.0.1:1/shared"


def write_settings(home, text):
    (home.root / "nvtrader.toml").write_text(text)


def test_home_without_settings_has_its_own_files(home, store):
    assert database_url(home) is None
    assert ledger_url(home).database == str(home.ledger)
    rows = [(row.check, row.result, row.problem) for row in check_databases(store)]
    assert rows == [("ledger", str(home.ledger), ""), ("catalog", str(home.catalog), "")]


def test_variable_wins_over_the_file_and_the_ledgers_own_over_both(home, monkeypatch, tmp_path):
    write_settings(home, 'database_url = "postgresql://me@host/file"')
    assert database_url(home).database == ledger_url(home).database == "file"
    assert database_url(home).drivername == "postgresql+psycopg"
    monkeypatch.setenv(VARIABLE, "")
    assert database_url(home).database == "file"
    monkeypatch.setenv(VARIABLE, "postgresql://me@host/variable")
    monkeypatch.setenv(LEDGER_VARIABLE, f"sqlite:///{tmp_path}/ledger.db")
    assert database_url(home).database == "variable"
    assert ledger_url(home).database == f"{tmp_path}/ledger.db"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("database_url =", "TOML"),
        (f'databse_url = "{CLOSED}"', "did you mean 'database_url'"),
        (f'database_url = "{CLOSED}"', "without a password"),
        (f'database_url = "postgresql://me@host/d?password={SECRET}"', "without a password"),
        (f"[database_url]\npassword = '{SECRET}'", "database_url: must be postgresql://"),
        (f'database_url = "mysql://me:{SECRET}@host/database"', "names mysql"),
        ('database_url = "sqlite:////some/file.db"', "names sqlite"),
        (f'database_url = "postgresql://me:{SECRET}@host:port/database"', "not a URL"),
        (f'database_url = "postgresql://me:a@{SECRET}@host/database"', "as %40"),
        (f'database_url = "postgresql://me@host/database?sslpassword={SECRET}"', "sslpassword"),
        (f'warehouse_uri = "s3://key:{SECRET}@bucket/folder"', "without credentials"),
        ('warehouse_uri = "file:///folder"', "must be s3://"),
        ('executor = "threads"', "must be one of processes, ray"),
    ],
)
def test_invalid_settings_are_refused_without_the_password(home, text, words):
    write_settings(home, text)
    with pytest.raises(StorageError, match=words) as caught:
        read_settings(home)
    assert SECRET not in f"{caught.value} {caught.value.__cause__}"


@pytest.mark.parametrize("url", [CLOSED, f"postgresql://me@127.0.0.1:1/shared?password={SECRET}"])
def test_password_of_the_variable_is_shown_nowhere(home, store, monkeypatch, tmp_path, url):
    monkeypatch.setenv(VARIABLE, url)
    with pytest.raises(UnavailableError) as caught:
        store.tables.describe_all()
    with pytest.raises(UnavailableError):
        _ = store.ledger
    rows = check_databases(store)
    assert [bool(row.problem) for row in rows] == [True, True, True]
    home.iceberg.joinpath("gold/returns/metadata").mkdir(parents=True)
    with pytest.raises(UnavailableError) as refused:
        write_backup(store, tmp_path / "home.tar", lambda *_: None)
    shown = (caught.value, caught.value.__cause__, rows, refused.value, read_settings(home), database_url(home))
    assert SECRET not in "".join(f"{part} {part!r}" for part in shown)


def test_executor_of_a_home_ends_with_the_call_on_another(home, tmp_path, monkeypatch):
    monkeypatch.delenv("NVTRADER_EXECUTOR", raising=False)
    monkeypatch.setenv("NVTRADER_RAY_ADDRESS", "person:1")
    write_settings(home, 'executor = "ray"\nray_address = "file:2"')
    apply_executor(home)
    assert (os.environ["NVTRADER_EXECUTOR"], os.environ["NVTRADER_RAY_ADDRESS"]) == ("ray", "person:1")
    other = Home(tmp_path / "other")
    assert read_settings(other).executor == "processes"
    apply_executor(other)
    assert "NVTRADER_EXECUTOR" not in os.environ
    assert os.environ["NVTRADER_RAY_ADDRESS"] == "person:1"


@pytest.mark.parametrize(
    ("settings", "n_problems"), [("", 0), ('executor = "ray"', 1), ('executor = "ray"\nray_address = "127.0.0.1:1"', 2)]
)
def test_doctor_tries_the_executor_without_starting_ray(home, store, settings, n_problems, monkeypatch):
    monkeypatch.setattr("nvtrader_pipelines.service.doctor.installed_version", lambda _: "")
    write_settings(home, settings)
    (row,) = check_executor(store)
    assert row.check == "executor"
    assert len(row.problem.split("; ")) == n_problems if n_problems else not row.problem
