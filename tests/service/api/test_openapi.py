"""Every documented route under generated requests: no failure, and answers as documented."""

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.core.failures import FailureGroup
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from nvtrader_pipelines.orchestration.job_runs import JobRuns
from nvtrader_pipelines.service.api import desk, launches
from tests.homes import copy_home
from tests.service.api.conftest import TOKEN, application

HEADERS = {"authorization": f"Bearer {TOKEN}", "host": "127.0.0.1"}
TASK_ID = "1deb0f4e-b482-4ba9-92c1-d620b8f5e078"
CHECKS = (not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance)


@pytest.fixture(scope="module")
def schema(built_home, tmp_path_factory):
    """Schema of the service of a copied home, which launches nothing."""
    app = application(copy_home(built_home, tmp_path_factory.mktemp("openapi") / "home"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(launches, "launch", lambda *_, **__: TASK_ID)
        patch.setattr(desk, "run_now", lambda *_, **__: (TASK_ID,))
        patch.setattr(JobRuns, "session_id", lambda *_: TASK_ID)
        yield schemathesis.openapi.from_asgi("/openapi.json", app, headers={"host": "127.0.0.1"})


QUICK = settings(
    max_examples=max(1, settings.default.max_examples // 7),
    derandomize=True,
    deadline=None,
    database=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)


def test_every_route_answers_generated_requests_as_documented(schema, caplog):
    problems = {}
    for found in schema.get_all_operations():
        operation = found.ok()

        @QUICK
        @given(case=operation.as_strategy())
        def answers(case):
            caplog.clear()
            case.call_and_validate(headers=HEADERS, checks=CHECKS)
            assert not caplog.records

        try:
            answers()
        except (Exception, FailureGroup) as error:  # noqa: BLE001 - all routes are tried, then reported
            problems[operation.label] = f"{error}"
    assert problems == {}
