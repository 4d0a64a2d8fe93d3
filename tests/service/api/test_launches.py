import pytest

from nvtrader_pipelines.orchestration.definitions import build_defs
from nvtrader_pipelines.orchestration.run_requirements import require_config
from nvtrader_pipelines.service.api import launches
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.world_files import read_world
from tests.orchestration.test_worlds import home_of
from tests.service.api.conftest import AUTHORIZED, client_of

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return home_of(tmp_path_factory.mktemp("worlds") / "home", "closed", "unknown", "unpriced")


def test_launched_world_is_run_by_its_job(home, monkeypatch):
    requests = []
    monkeypatch.setattr(launches, "launch", lambda _, job, config: requests.append((job, config)) or "task")
    launched = client_of(home).post("/api/worlds/closed/run", headers=AUTHORIZED)
    assert launched.status_code == 202
    assert launched.json()["task_id"] == "task"
    assert launched.json()["version_id"] == read_world(home, "closed").partition_key
    ((job, config),) = requests
    require_config(Store(home), build_defs(home=home).resolve_job_def(job), config)
    assert [step["config"] for step in config["ops"].values()] == [{"worlds": ["closed"]}]


@pytest.mark.parametrize(("name", "status"), [("nobody", 404), ("unknown", 404), ("unpriced", 409)])
def test_launch_of_a_world_that_cannot_run_is_refused(home, name, status):
    assert client_of(home).post(f"/api/worlds/{name}/run", headers=AUTHORIZED).status_code == status
