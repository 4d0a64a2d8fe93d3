import json
import os
import socket
import subprocess
import sys
from uuid import uuid4

import dagster as dg
import psutil
import pytest
import yaml
from dagster._core.execution.plan.instance_concurrency_context import InstanceConcurrencyContext

from nvtrader_pipelines.orchestration.instance import (
    CODE_SERVER_TAG,
    PROCESS_TAG,
    cancel_dead_runs,
    close_copied_runs,
    dagster_home,
    fail_lost_runs,
    let_waiting_steps_sleep,
    open_instance,
    process_tag,
)
from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.ledger.database import VARIABLE
from nvtrader_pipelines.storage.store import Store
from tests.homes import copy_home
from tests.storage.ledger.run_rows import RUN_ID, run_row

pytestmark = pytest.mark.slow


@dg.op
def nothing() -> None: ...


@dg.job
def nothing_job() -> None:
    nothing()


@pytest.fixture(scope="module")
def opened(tmp_path_factory):
    """Home whose instance was opened; tests copy it."""
    home = Home(tmp_path_factory.mktemp("opened") / "home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DAGSTER_HOME", "elsewhere")
        with open_instance(Store(home)):
            return home


@pytest.fixture
def home(opened, tmp_path, monkeypatch):
    monkeypatch.setenv("DAGSTER_HOME", "elsewhere")
    return copy_home(opened, tmp_path / "home")


def test_instance_uses_the_shipped_settings(home):
    with open_instance(Store(home)) as instance:
        assert instance.root_directory == str(home.dagster)
        assert os.environ["DAGSTER_HOME"] == str(home.dagster)
        assert not instance.telemetry_enabled
        assert instance.run_retries_enabled
        assert not instance.run_retries_max_retries > 1
        assert instance.run_monitoring_enabled
        assert instance.run_monitoring_cancel_timeout_seconds == 86400
        limits = instance.get_concurrency_config()
        assert limits.pool_config.default_pool_limit == 1
        assert limits.run_queue_config.max_concurrent_runs == 2
        alone = [{"key": f"nvtrader/{what}", "limit": 1} for what in ("training", "trading")]
        assert limits.run_queue_config.tag_concurrency_limits == alone


def test_instance_keeps_changed_settings(home):
    settings = dagster_home(home) / "dagster.yaml"
    changed = {**yaml.safe_load(settings.read_text()), "telemetry": {"enabled": True}}
    settings.write_text(yaml.safe_dump(changed))
    dagster_home(home)
    assert yaml.safe_load(settings.read_text()) == changed


def test_instance_does_not_capture_output(home):
    with open_instance(Store(home)) as instance:
        assert type(instance.compute_log_manager).__name__ == "NoOpComputeLogManager"


def started(instance, tags) -> str:
    """The id of a run under way that holds the training pool."""
    run = instance.create_run_for_job(nothing_job, tags=tags, status=dg.DagsterRunStatus.STARTED)
    instance.event_log_storage.set_concurrency_slots("training", 1)
    instance.event_log_storage.claim_concurrency_slot("training", run.run_id, "trained_policy")
    return run.run_id


def test_run_of_a_killed_process_is_canceled_and_frees_its_pool(home):
    with subprocess.Popen([sys.executable, "-c", ""]) as killed:
        mark = f"{killed.pid}@{psutil.Process(killed.pid).create_time():.0f}"
    with open_instance(Store(home)) as instance:
        dead = started(instance, {PROCESS_TAG: mark})
    with open_instance(Store(home)) as instance:
        assert instance.get_run_by_id(dead).status is dg.DagsterRunStatus.CANCELED
        assert instance.event_log_storage.get_concurrency_info("training").claimed_slots == []


def test_pool_slot_of_an_unknown_run_is_freed(home):
    with open_instance(Store(home)) as instance:
        instance.event_log_storage.set_concurrency_slots("training", 1)
        instance.event_log_storage.claim_concurrency_slot("training", str(uuid4()), "trained_policy")
    with open_instance(Store(home)) as instance:
        assert instance.event_log_storage.get_concurrency_info("training").claimed_slots == []


def test_step_that_waits_for_its_pool_sleeps_until_its_next_claim(home, monkeypatch):
    name = "interval_to_next_pending_claim_check"
    monkeypatch.setattr(InstanceConcurrencyContext, name, getattr(InstanceConcurrencyContext, name))  # to be restored
    let_waiting_steps_sleep()
    with open_instance(Store(home)) as instance:
        first, second = (instance.create_run_for_job(nothing_job) for _ in range(2))
        with (
            InstanceConcurrencyContext(instance, first) as holding,
            InstanceConcurrencyContext(instance, second) as waiting,
        ):
            assert [context.claim("training", "step") for context in (holding, waiting)] == [True, False]
            assert holding.interval_to_next_pending_claim_check() == 0.0
            assert 0.5 < waiting.interval_to_next_pending_claim_check() <= 15.0


def test_run_whose_process_ended_unseen_or_while_it_was_canceled_is_canceled(home):
    with subprocess.Popen([sys.executable, "-c", ""]) as zombie:
        mark = f"{zombie.pid}@{psutil.Process(zombie.pid).create_time():.0f}"
        os.waitid(os.P_PID, zombie.pid, os.WEXITED | os.WNOWAIT)
        with open_instance(Store(home)) as instance:
            dead = [started(instance, {PROCESS_TAG: mark}) for _ in range(2)]
            instance.report_run_canceling(instance.get_run_by_id(dead[0]))
            cancel_dead_runs(instance)
            assert [instance.get_run_by_id(run).status for run in dead] == [dg.DagsterRunStatus.CANCELED] * 2


@pytest.mark.parametrize("tags", [process_tag(), {}], ids=["of a living process", "of the daemon"])
def test_run_of_a_live_process_is_not_canceled(home, tags):
    with open_instance(Store(home)) as instance:
        running = started(instance, tags)
    with open_instance(Store(home)) as instance:
        assert instance.get_run_by_id(running).status is dg.DagsterRunStatus.STARTED
        assert len(instance.event_log_storage.get_concurrency_info("training").claimed_slots) == 1


@pytest.mark.parametrize("is_alive", [True, False])
def test_run_of_a_ui_that_was_killed_fails_and_is_retried(home, tmp_path, is_alive):
    path = str(tmp_path / "code")
    with socket.socket(socket.AF_UNIX) as server, open_instance(Store(home)) as instance:
        server.bind(path)
        if is_alive:
            server.listen()
        running = started(instance, {CODE_SERVER_TAG: json.dumps({"socket": path})})
        fail_lost_runs(instance)
        run = instance.get_run_by_id(running)
        assert run.status is (dg.DagsterRunStatus.STARTED if is_alive else dg.DagsterRunStatus.FAILURE)
        assert run.tags.get("dagster/will_retry") == (None if is_alive else "true")
        assert len(instance.event_log_storage.get_concurrency_info("training").claimed_slots) == is_alive


def test_ledger_run_is_closed_once_its_dagster_run_has_ended(home):
    ledger, ended = Store(home).ledger, ("CANCELED", "FAILURE", "SUCCESS")
    with open_instance(Store(home)) as instance:
        for state in (*ended, "STARTED"):
            launcher = instance.create_run_for_job(nothing_job, status=dg.DagsterRunStatus[state]).run_id
            ledger.begin(run_row(ledger, run_id=state, dagster_run_id=launcher))
    with open_instance(Store(home)):
        assert {ledger.run(state).status for state in ended} == {"interrupted"}
        assert ledger.run("STARTED").status == "running"
    assert None not in {ledger.run(state).message for state in ended}
    assert ledger.run("STARTED").message is None


def test_ledger_run_of_another_dagster_instance_stays_open(home):
    ledger = Store(home).ledger
    ledger.begin(run_row(ledger, dagster_run_id="of another machine"))
    with open_instance(Store(home)):
        assert ledger.run(RUN_ID).status == "running"


def test_ledger_run_of_a_killed_process_is_closed(home):
    ledger = Store(home).ledger
    with subprocess.Popen([sys.executable, "-c", ""]) as killed:
        mark = f"{killed.pid}@{psutil.Process(killed.pid).create_time():.0f}"
    with open_instance(Store(home)) as instance:
        ledger.begin(run_row(ledger, dagster_run_id=started(instance, {PROCESS_TAG: mark})))
    with open_instance(Store(home)):
        assert ledger.run(RUN_ID).status == "interrupted"


def test_runs_under_way_are_closed_in_a_copy_of_the_home(home):
    ledger = Store(home).ledger
    with open_instance(Store(home)) as instance:
        launcher = started(instance, process_tag())  # of a living process: it runs in the original
        ledger.begin(run_row(ledger, dagster_run_id=launcher))
    assert close_copied_runs(Store(home)) == [RUN_ID]
    with open_instance(Store(home)) as instance:
        assert instance.get_run_by_id(launcher).status is dg.DagsterRunStatus.CANCELED
    assert ledger.run(RUN_ID).status == "interrupted"


def test_runs_of_a_ledger_elsewhere_stay_open_in_a_copy(home, monkeypatch):
    ledger = Store(home).ledger
    ledger.begin(run_row(ledger, dagster_run_id="of the original"))
    monkeypatch.setenv(VARIABLE, f"sqlite:///{home.ledger}")
    assert close_copied_runs(Store(home)) == []
    assert ledger.run(RUN_ID).status == "running"
