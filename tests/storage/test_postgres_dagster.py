"""Histories of Dagster and MLflow in Postgres."""

import os
import signal
import subprocess
import time

import dagster as dg
import psutil
import pytest

from nvtrader_pipelines.orchestration.instance import (
    PROCESS_TAG,
    STORAGE,
    URL_VARIABLE,
    dagster_home,
    open_instance,
    process_tag,
)
from nvtrader_pipelines.orchestration.mlflow_curves import PROCESS_TAG as MARK
from nvtrader_pipelines.orchestration.mlflow_tracking import EXPERIMENT, MlflowTracking
from nvtrader_pipelines.storage.errors import UnavailableError
from nvtrader_pipelines.storage.store import Store
from tests.homes import NVTRADER, environment, nvtrader, small_home
from tests.orchestration.test_ui import free_port

pytestmark = pytest.mark.nightly
SECRET = "swordfish"
VARIABLE = "NVTRADER_DATABASE_URL"


@pytest.fixture
def home(tmp_path):
    return small_home(tmp_path / "home")


@pytest.fixture
def database(server, tmp_path, monkeypatch):
    """Name of an empty database, whose URL has a password that the server does not ask for."""
    name = f"histories_{abs(hash(tmp_path)):x}"
    server.psql(f"CREATE DATABASE {name}")
    url = server.get_uri(name).replace("postgres:@", f"postgres:{SECRET}@")
    assert SECRET in url
    monkeypatch.setenv(VARIABLE, url)
    monkeypatch.setenv("DAGSTER_HOME", "elsewhere")
    monkeypatch.delenv(URL_VARIABLE, raising=False)
    return name


def files_with_the_password(home):
    files = [path for path in home.root.rglob("*") if path.is_file()]
    return [path for path in files if SECRET.encode() in path.read_bytes()]


def test_run_of_a_home_in_postgres_leaves_no_database_in_the_home(home, database):
    finished = nvtrader(home, "ingest")
    assert finished.returncode == 0, finished.stderr
    with open_instance(Store(home)) as instance:
        assert [run.status for run in instance.get_runs()] == [dg.DagsterRunStatus.SUCCESS]
        assert SECRET not in str(instance.get_ref())
    assert not [*home.warehouse.rglob("*.db")]
    assert files_with_the_password(home) == []
    assert SECRET not in finished.stdout + finished.stderr


def test_home_is_switched_to_postgres_and_back(home, database, monkeypatch):
    def run_ids():
        with open_instance(Store(home)) as instance:
            return {run.run_id for run in instance.get_runs()}

    @dg.job
    def nothing_job(): ...

    url = os.environ[VARIABLE]
    monkeypatch.delenv(VARIABLE)
    settings = dagster_home(home) / "dagster.yaml"
    settings.write_text(f"{settings.read_text()}# own\n")
    before = settings.read_text()
    with open_instance(Store(home)) as instance:
        in_files = instance.create_run_for_job(nothing_job).run_id
    monkeypatch.setenv(VARIABLE, url)
    assert run_ids() == set()
    assert settings.read_text() == before + STORAGE
    with open_instance(Store(home)) as instance:
        in_postgres = instance.create_run_for_job(nothing_job).run_id
        elsewhere = {PROCESS_TAG: f"{process_tag()[PROCESS_TAG].rpartition('@')[0]}0@elsewhere"}
        running = instance.create_run_for_job(nothing_job, tags=elsewhere, status=dg.DagsterRunStatus.STARTED).run_id
    with open_instance(Store(home)) as instance:
        assert instance.get_run_by_id(running).status is dg.DagsterRunStatus.STARTED  # of another machine
    monkeypatch.delenv(VARIABLE)
    assert run_ids() == {in_files}
    assert settings.read_text() == before
    monkeypatch.setenv(VARIABLE, url)
    assert run_ids() == {in_postgres, running}


def test_dagster_in_a_database_that_does_not_answer_is_a_sentence(home, monkeypatch):
    monkeypatch.setenv(VARIABLE, f"postgresql://me:{SECRET}@127.0.0.1:1/shared")
    with pytest.raises(UnavailableError, match="Dagster database") as caught:
        open_instance(Store(home))
    assert SECRET not in str(caught.value)


def test_mlflow_in_postgres_tracks_two_homes_and_each_keeps_its_artifacts(home, database, tmp_path):
    other = small_home(tmp_path / "other")
    for place, name in ((home, EXPERIMENT), (other, f"{EXPERIMENT} of {other.root}")):
        with MlflowTracking.at(place).run("run", "name") as run:
            run.log(lambda tracked: tracked.log_curve("curve", [(1, 2.0)]))
            run.log(lambda tracked, place=place: tracked.log_files(place.experiments))
        client, *experiment_ids = MlflowTracking.at(place).open()
        (tracked,) = client.search_runs(experiment_ids)
        assert client.get_experiment(tracked.info.experiment_id).name == name
        assert (tracked.info.status, tracked.data.metrics) == ("FINISHED", {"curve": 2.0})
        assert [*place.mlflow.glob("artifacts/*/artifacts/experiments/tiny.yaml")]
        assert not place.mlflow_database.exists()
        assert files_with_the_password(place) == []
    client.set_tag(run.mlflow_run_id, MARK, "1 2000-01-01T00:00:00+00:00 elsewhere")
    client.update_run(run.mlflow_run_id, "RUNNING")
    client = MlflowTracking.at(other).open()[0]
    assert client.get_run(run.mlflow_run_id).info.status == "RUNNING"
    MlflowTracking.at(other).delete("run")
    assert len(client.search_runs(experiment_ids)) == 0


def test_mlflow_in_a_database_that_does_not_answer_is_one_warning(home, monkeypatch):
    monkeypatch.setenv(VARIABLE, f"postgresql://me:{SECRET}@127.0.0.1:1/shared")
    warnings, started_at = [], time.monotonic()
    with MlflowTracking.at(home).run("run", "name", warnings.append) as run:
        run.log(lambda tracked: tracked.log_curve("curve", [(1, 2.0)]))
    assert len(warnings) == 1
    assert SECRET not in warnings[0]
    assert time.monotonic() - started_at < 60.0  # most of it imports MLflow


@pytest.mark.parametrize("command", ["ui", "mlflow"])
def test_servers_of_a_database_show_no_password_and_are_one_ui(home, database, tmp_path, command):
    port = free_port()
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True, "start_new_session": True}
    with subprocess.Popen([NVTRADER, command, "--port", str(port)], env=environment(home), **options) as process:
        try:
            assert next(line for line in process.stdout if str(port) in line)
            lines = [" ".join(child.cmdline()) for child in psutil.Process(process.pid).children(recursive=True)]
            assert lines
            assert SECRET not in "".join(lines)
            if command == "ui":
                second = nvtrader(small_home(tmp_path / "second"), "ui", "--port", str(free_port()))
                assert second.returncode != 0
                assert "another machine serves it" in second.stderr
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(300)
    assert files_with_the_password(home) == []
