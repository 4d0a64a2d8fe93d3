import os
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest
from hatchling.builders.wheel import WheelBuilder

from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.new_home import SHIPPED_FILES, create_home
from nvtrader_pipelines.storage.specs import read_experiments, read_market

CHECKOUT = Path(__file__).resolve().parents[2]


def test_created_home_holds_shipped_files_and_valid_experiments(tmp_path):
    home = create_home(tmp_path / "new" / "home")
    files = {str(path.relative_to(home.root / "data")) for path in home.root.rglob("*") if path.is_file()}
    assert files == set(SHIPPED_FILES)
    assert home.landing.is_dir()
    assert home.warehouse.is_dir()
    found = read_experiments(home)
    assert ([spec.name for spec in found.specs], found.problems) == (
        ["cufolio", "ppo-cvar", "ppo-growth", "ppo-residual"],
        {},
    )
    assert [source.kind for source in read_market(home).sources] == ["sample", "landing"]


def test_create_home_in_occupied_place_raises_and_changes_nothing(tmp_path):
    occupied = tmp_path / "notes.txt"
    occupied.write_text("mine")
    for place in (tmp_path, occupied, occupied / "home"):
        with pytest.raises(StorageError, match="needs a new or empty folder"):
            create_home(place)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]
    assert occupied.read_text() == "mine"


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
