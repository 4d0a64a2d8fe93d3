import re
from pathlib import Path

import pytest

from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.new_home import create_home


def test_home_is_found_by_environment_variable(monkeypatch, tmp_path):
    monkeypatch.setenv("NVTRADER_HOME", str(tmp_path / "here"))
    assert Home.find() == Home(tmp_path / "here")


def test_home_is_the_checkout_without_environment_variable(monkeypatch, tmp_path):
    monkeypatch.delenv("NVTRADER_HOME", raising=False)
    monkeypatch.chdir(tmp_path)
    assert Home.find().root == Path(__file__).resolve().parents[2]


def test_inputs_and_built_files_have_separate_folders(tmp_path):
    home = Home(tmp_path)
    inputs = (home.landing, home.experiments, home.market_file, home.policies, home.accounts, home.compliance)
    records = (home.audit, home.kill_switch)
    built = (home.iceberg, home.catalog, home.duckdb_file, home.deliveries, home.ledger, home.mlflow, home.dagster)
    assert all(path.is_relative_to(tmp_path / "data") for path in (*inputs, *records))
    assert all(path.is_relative_to(home.warehouse) for path in built)


@pytest.mark.parametrize("name", ["why?", "a%20b"])
def test_home_at_a_path_that_reads_as_a_url_is_refused(tmp_path, name):
    with pytest.raises(StorageError, match=re.escape(f"{tmp_path / name} must be without ? and %XX")):
        Home.at(tmp_path / name)
    with pytest.raises(StorageError):
        create_home(tmp_path / name)
    assert not (tmp_path / name).exists()
    assert Home.at(tmp_path / "100% #1 [x] ü").root == tmp_path / "100% #1 [x] ü"
