import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from urllib.parse import unquote, urlparse

import pytest
import yaml
from polars.testing import assert_frame_equal

from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.tables import RUNS
from nvtrader_pipelines.storage.views.queries import query_views
from tests.homes import SWEEP, nvtrader, table_contents


@pytest.fixture(scope="module")
def restored(built_home, tmp_path_factory, fast_nvtrader):
    """The built home, restored elsewhere from a backup."""
    folder = tmp_path_factory.mktemp("backups")
    written = nvtrader(built_home, "backup", str(folder / "home.tar"), "--json", command=fast_nvtrader)
    assert json.loads(written.stdout)["path"] == str(folder / "home.tar"), written.stderr
    home = Home(folder / "it's a colleague's, 100 % é")
    done = nvtrader(home, "restore", str(folder / "home.tar"), str(home.root), "--json", command=fast_nvtrader)
    assert json.loads(done.stdout)["interrupted_runs"] == [], done.stderr
    return home


ARTIFACTS = (
    """SELECT artifact_uri FROM runs JOIN experiments USING (experiment_id) WHERE experiments.name = 'nvtrader'"""
)


def file_states(home):
    """Size and modification time of the files that another home could reach by a recorded location."""
    files = [path for place in (home.iceberg, home.mlflow) for path in place.rglob("*.*") if path.suffix != ".lock"]
    return {path: (path.stat().st_size, path.stat().st_mtime_ns) for path in files if path.is_file()}


def artifacts(home):
    """Folders of MLflow's artifacts of experiment runs."""
    with closing(sqlite3.connect(home.mlflow / "mlflow.db")) as database:
        rows = database.execute(ARTIFACTS).fetchall()
    return [Path(unquote(urlparse(uri).path)) for (uri,) in rows]


def test_restored_home_has_the_tables_and_the_views(built_home, restored):
    contents = table_contents(restored)
    for name, frame in table_contents(built_home).items():
        assert_frame_equal(contents[name], frame)
    assert query_views(Store(restored), "SELECT count(*) FROM rl.runs").item() == 1


@pytest.mark.nightly
def test_restored_home_trains_without_the_original(built_home, restored, tmp_path, fast_nvtrader):
    before = file_states(built_home)
    shutil.copytree(restored.root, tmp_path / "home")
    restored = Home(tmp_path / "home")
    spec = {key: value for key, value in SWEEP.items() if key != "design"}
    (restored.experiments / "short.yaml").write_text(yaml.safe_dump({**spec, "name": "short"}))
    done = nvtrader(restored, "experiments", "run", "short", "--no-judge", command=fast_nvtrader)
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(Store(restored).tables.read(RUNS)) == 2
    assert file_states(built_home) == before
    folders = artifacts(restored)
    assert len(folders) == 2
    assert all(folder.is_relative_to(restored.mlflow) and any(folder.rglob("fold-0-seed-0.zip")) for folder in folders)


def test_backup_to_a_folder_is_named_after_home_and_time(store, home, command, tmp_path):
    (tmp_path / "backups").mkdir()
    done = command(home)("backup", str(tmp_path / "backups"))
    (file,) = (tmp_path / "backups").iterdir()
    assert (done.exit_code, file.match("home-2*Z.tar")) == (0, True)
    assert str(file) in done.stdout.replace("\n", "")
