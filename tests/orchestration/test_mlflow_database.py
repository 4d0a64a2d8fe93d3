import resource
import sqlite3
import subprocess
import sys
import time
from contextlib import closing

import pytest
import sqlalchemy
from alembic import command
from alembic.config import Config
from mlflow.store.tracking.dbmodels.initial_models import Base

from nvtrader_pipelines.orchestration.mlflow_tracking import EXPERIMENT, TRAININGS, MlflowTracking
from nvtrader_pipelines.storage.file_problems import mlflow_problem

OPEN = """
import sys
from nvtrader_pipelines.orchestration.mlflow_tracking import MlflowTracking
MlflowTracking(folder=sys.argv[1]).open()
"""
BEFORE_WORKSPACES = "bf29a5ff90ea"  # revision of MLflow's schema with fewer tables than today's


@pytest.fixture
def tracking(tmp_path):
    """A tracking folder without a database."""
    return MlflowTracking(folder=str(tmp_path / "mlflow"))


@pytest.fixture
def database(tmp_path):
    """Path of its database."""
    return tmp_path / "mlflow" / "mlflow.db"


def names(tracking, warn=print):
    client, *_ = tracking.open(warn)
    return {each.name for each in client.search_experiments()}


@pytest.mark.slow
def test_database_appears_whole(tracking, database):
    assert names(tracking) == {"Default", EXPERIMENT, TRAININGS}
    assert {path.name for path in database.parent.iterdir()} == {"mlflow.db", "mlflow.db.lock"}
    assert mlflow_problem(database) is None


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.parametrize("seconds", [0.0, 0.2, 0.4, 0.6])
def test_maker_killed_at_any_moment_leaves_a_folder_that_opens(seconds, tracking, database):
    warnings, aside = [], database.with_name(".mlflow.db.new")
    with subprocess.Popen([sys.executable, "-c", OPEN, tracking.folder]) as maker:
        while not (aside.exists() or database.exists()) and maker.poll() is None:
            time.sleep(0.005)
        time.sleep(seconds)
        maker.kill()
    assert not database.exists() or mlflow_problem(database) is None
    assert names(tracking, warnings.append) == {"Default", EXPERIMENT, TRAININGS}
    assert warnings == []
    assert list(database.parent.glob(".*")) == []


@pytest.mark.slow
def test_unusable_database_is_set_aside_and_made_anew(tracking, database):
    database.parent.mkdir()
    for end in ("", "-2"):
        database.write_bytes(b"torn" * 4096)
        warnings = []
        assert names(tracking, warnings.append) == {"Default", EXPERIMENT, TRAININGS}
        assert len(warnings) == 1
        assert (database.parent / f"mlflow.db.damaged{end}").read_bytes() == b"torn" * 4096


@pytest.mark.slow
def test_older_schema_is_migrated_and_keeps_its_experiments(tracking, database):
    database.parent.mkdir()
    engine = sqlalchemy.create_engine(f"sqlite:///{database}", poolclass=sqlalchemy.NullPool)
    Base.metadata.create_all(engine)
    config = Config()
    config.set_main_option("script_location", "mlflow.store:db_migrations")
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, BEFORE_WORKSPACES)
    with closing(sqlite3.connect(database)) as connection, connection:
        connection.execute("INSERT INTO experiments (name, lifecycle_stage) VALUES ('old', 'active')")
    warnings = []
    assert mlflow_problem(database) is None
    assert names(tracking, warnings.append) >= {"old", EXPERIMENT}
    assert warnings == []


@pytest.mark.slow
def test_full_disk_is_one_warning_and_no_file(tracking, database):
    warnings, before = [], resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, before[1]))
    try:
        with tracking.run("run-1", "name", warnings.append) as run:
            assert run.mlflow_run_id is None
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert len(warnings) == 1
    assert [path.name for path in database.parent.iterdir()] == ["mlflow.db.lock"]
    with tracking.run("run-1", "name", warnings.append) as run:
        assert run.mlflow_run_id is not None
    assert len(warnings) == 1
