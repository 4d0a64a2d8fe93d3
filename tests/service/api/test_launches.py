import pytest

from nvtrader_pipelines.orchestration.definitions import build_defs
from nvtrader_pipelines.orchestration.run_requirements import require_config
from nvtrader_pipelines.service.api import launches
from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.store import Store
from tests.orchestration.test_worlds import INVALID, UNPRICED
from tests.runs.small_worlds import CLOSED, write_worlds
from tests.service.api.conftest import AUTHORIZED, client_of


@pytest.mark.slow
def test_world_is_launched_by_its_job_or_refused(tmp_path, monkeypatch):
    requests = []
    monkeypatch.setattr(launches, "launch", lambda _, job, config: requests.append((job, config)) or "task")
    home = Home(tmp_path / "home")
    write_worlds(home, closed=CLOSED, unpriced=UNPRICED, invalid=INVALID)
    client = client_of(home)
    answers = {
        name: client.post(f"/api/worlds/{name}/run", headers=AUTHORIZED)
        for name in ("closed", "unpriced", "invalid", "nobody")
    }
    statuses = {name: answer.status_code for name, answer in answers.items()}
    assert statuses == {"closed": 202, "unpriced": 409, "invalid": 404, "nobody": 404}
    assert answers["closed"].json()["task_id"] == "task"
    ((job, config),) = requests
    require_config(Store(home), build_defs(home=home).resolve_job_def(job), config)
    assert [step["config"] for step in config["ops"].values()] == [{"worlds": ["closed"]}]
