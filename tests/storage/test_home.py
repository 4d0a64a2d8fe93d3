import os
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest
from hatchling.builders.wheel import WheelBuilder

from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.home import SHIPPED_FILES, Home, create_home
from nvtrader_pipelines.storage.specs import read_experiments, read_market

CHECKOUT = Path(__file__).resolve().parents[2]


def test_home_is_found_by_environment_variable(monkeypatch, tmp_path):
    monkeypatch.setenv("NVTRADER_HOME", str(tmp_path / "here"))
    assert Home.find() == Home(tmp_path / "here")


def test_home_without_variable_is_the_current_one_else_the_checkout(monkeypatch, tmp_path):
    monkeypatch.delenv("NVTRADER_HOME", raising=False)
    monkeypatch.chdir(tmp_path)
    assert Home.find().root == CHECKOUT
    monkeypatch.chdir(create_home(tmp_path / "home").root)
    assert Home.find().root == tmp_path / "home"


def test_inputs_and_built_files_have_separate_folders(tmp_path):
    home = Home(tmp_path)
    inputs = (home.landing, home.experiments, home.market_file, home.policies, home.accounts, home.compliance)
    records = (home.audit, home.kill_switch)
    built = (home.iceberg, home.catalog, home.duckdb_file, home.deliveries, home.ledger, home.mlflow, home.dagster)
    assert all(path.is_relative_to(tmp_path / "data") for path in (*inputs, *records))
    assert all(path.is_relative_to(home.warehouse) for path in built)


@pytest.mark.parametrize("name", ["why?", "a%20b"])
def test_home_at_a_path_that_reads_as_a_url_is_refused(tmp_path, name):
    with pytest.raises(StorageError):
        Home.at(tmp_path / name)
    with pytest.raises(StorageError):
        create_home(tmp_path / name)
    assert not (tmp_path / name).exists()
    assert Home.at(tmp_path / "100% #1 [x] ü").root == tmp_path / "100% #1 [x] ü"


def test_created_home_holds_shipped_files_and_valid_experiments(tmp_path):
    home = create_home(tmp_path / "new" / "home")
    files = {str(path.relative_to(home.root / "data")) for path in home.root.rglob("*") if path.is_file()}
    assert files == set(SHIPPED_FILES)
    empty = {
        str(path.relative_to(home.root)) for path in home.root.rglob("*") if path.is_dir() and not [*path.iterdir()]
    }
    assert empty == {"data/landing", "data/rl/policies", "data/autoresearch/policies", "data/audit", "warehouse"}
    found = read_experiments(home)
    assert ([spec.name for spec in found.specs], found.problems) == (
        ["cufolio", "pathwise", "ppo-cvar", "ppo-growth", "ppo-residual"],
        {},
    )
    assert [source.kind for source in read_market(home).sources] == ["sample", "landing"]


def test_create_home_in_occupied_place_raises_and_changes_nothing(tmp_path):
    occupied = tmp_path / "notes.txt"
    occupied.write_text("mine")
    for place in (tmp_path, occupied, occupied / "home"):
        with pytest.raises(StorageError):
            create_home(place)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]
    assert occupied.read_text() == "mine"


@pytest.mark.slow
def test_home_of_an_installed_wheel_holds_the_shipped_files(tmp_path):
    (wheel,) = WheelBuilder(str(CHECKOUT)).build(directory=str(tmp_path / "dist"), versions=["standard"])
    with ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "installed")
    (metadata,) = (tmp_path / "installed").glob("*.dist-info")
    assert "nvtrader = nvtrader_pipelines.service.cli.app:main" in (metadata / "entry_points.txt").read_text()
    command = [sys.executable, "-c", "from nvtrader_pipelines.service.cli.app import main; main()", "init", "home"]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "installed")}
    subprocess.run(command, cwd=tmp_path, env=environment, check=True, timeout=60)
    for name in SHIPPED_FILES:
        assert (tmp_path / "home" / "data" / name).read_bytes() == (CHECKOUT / "data" / name).read_bytes()
