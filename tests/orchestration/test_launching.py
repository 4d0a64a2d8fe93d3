"""Jobs launched from another process, in a running UI and without one."""

import io
import json
import signal
import subprocess
import sys
import time
from contextlib import suppress
from datetime import UTC, datetime
from types import SimpleNamespace
from uuid import uuid4
from zoneinfo import ZoneInfo

import dagster as dg
import psutil
import pytest

from nvtrader_pipelines.orchestration import launching, schedules
from nvtrader_pipelines.orchestration.instance import PROCESS_TAG, open_instance
from nvtrader_pipelines.orchestration.job_runs import JobRuns
from nvtrader_pipelines.orchestration.job_states import RUN_NOW, SCHEDULED_JOBS
from nvtrader_pipelines.orchestration.launching import RunningUi, launch, run_now
from nvtrader_pipelines.orchestration.partitions import EXPERIMENTS, whole_history_tags
from nvtrader_pipelines.orchestration.schedules import SCHEDULES
from nvtrader_pipelines.research.recorded_session import is_closed, read_session
from nvtrader_pipelines.runs.interruptions import RunHalted
from nvtrader_pipelines.service.api.problems import status_of
from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.files import file_lock
from nvtrader_pipelines.storage.home import lock_path
from nvtrader_pipelines.storage.kill_switch import FileKillSwitch, Halt
from nvtrader_pipelines.storage.store import Store
from tests.homes import KEY, small_home
from tests.orchestration.test_ui import free_port, serving
from tests.research.search_homes import market, search_home

PATIENCE = 120.0  # seconds
LAUNCH_AND_WAIT = """
import sys, time
from pathlib import Path
from nvtrader_pipelines.orchestration.launching import launch
from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.store import Store
assert "dagster" not in sys.modules
print(launch(Store(Home(Path(sys.argv[1]))), "upkeep", tags={"nvtrader/by": "ann"}), flush=True)
time.sleep(600)
"""
RUN_REQUESTS = """
import os, sys
from pathlib import Path
from nvtrader_pipelines.orchestration import launching
launching._requested = lambda *_: {requests}
read, write = os.pipe()
sys.argv = ["", sys.argv[1], "1deb0f4e-b482-4ba9-92c1-d620b8f5e078", str(write), "{{}}"]
if os.fork() == 0:
    launching.main()
    os._exit(0)
with os.fdopen(read) as answers:
    print(*answers.readline().strip().removeprefix(launching.STARTED).split(","), flush=True)
os._exit(0)
"""


@dg.op
def nothing() -> None: ...


@dg.job(name="market")
def nothing_job() -> None:
    nothing()


@dg.op
def signal_end() -> None:
    signal.raise_signal(signal.SIGTERM)


@dg.job
def ending_job() -> None:
    signal_end()


@pytest.fixture(autouse=True)
def _own_dagster_home(monkeypatch):
    monkeypatch.setenv("DAGSTER_HOME", "")  # set by opening, and set back after


@pytest.fixture(scope="module")
def searched(tmp_path_factory):
    """Store of a home with a market to search."""
    return Store(search_home(tmp_path_factory.mktemp("searched") / "home", market()))


def search_config(**settings):
    return {"ops": {"autoresearch_session": {"config": {"source": "landing", "eval_mode": "cufolio_only", **settings}}}}


def ended(runs, run_id):
    """The run once it has ended."""
    return until(lambda: run if (run := runs.run(run_id)).ended_at else None)


def until(found):
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        answer = found()
        if answer:
            return answer
        time.sleep(0.1)
    raise AssertionError("it took too long")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("job", "config", "tags"),
    [
        ("markets", {}, {}),
        ("market", {}, {}),
        ("market", {}, {launching.PARTITION: "1912"}),
        ("experiment", {}, {launching.PARTITION: "tiny@00000000"}),
        ("judgement", {}, {launching.PARTITION: "2020"}),
        ("autoresearch", search_config(budget="many"), {}),
        ("autoresearch", search_config(unknown=1), {}),
        ("autoresearch", search_config(proposer="gpt-7"), {}),
    ],
)
def test_launch_of_an_invalid_run_is_refused(job, config, tags, searched, instance):
    instance.add_dynamic_partitions(EXPERIMENTS.name, [KEY])
    with pytest.raises((StorageError, ValueError)):
        launching._valid_job(searched, instance, job, config, tags)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("job", "config", "tags"),
    [
        ("market", {}, {launching.PARTITION: "2020"}),
        ("market", {}, whole_history_tags()),
        ("experiment", {}, {launching.PARTITION: KEY}),
        ("autoresearch", search_config(budget=2), {}),
    ],
)
def test_launch_of_a_valid_run_finds_its_job(job, config, tags, searched, instance):
    instance.add_dynamic_partitions(EXPERIMENTS.name, [KEY])
    assert launching._valid_job(searched, instance, job, config, tags).name == job


@pytest.mark.slow
@pytest.mark.parametrize("settings", [{"budget": 0}, {"workers": 0}, {"seed": -1}, {"source": "yahoo"}, {"goal": ""}])
def test_launch_of_a_search_out_of_bounds_is_refused_as_in_its_run(settings, searched):
    with pytest.raises(StorageError):
        launching.require_search(searched, "autoresearch", search_config(**settings))
    assert searched.searches.folders() == []


def test_launch_in_a_ui_that_does_not_answer_or_has_no_healthy_daemon_is_refused(store):
    with pytest.raises(StorageError):
        RunningUi(f"http://127.0.0.1:{free_port()}").launch(store, "market", {}, {})
    ui = RunningUi("http://127.0.0.1:3000")
    health = {"allDaemonStatuses": [{"required": True, "healthy": False}]}
    data = {"instance": {"daemonHealth": health}, "repositoriesOrError": {"nodes": []}}
    ui._opener = SimpleNamespace(open=lambda *_, **__: io.BytesIO(json.dumps({"data": data}).encode()))
    with pytest.raises(StorageError, match="daemon"):
        ui.launch(store, "market", {}, {})


@pytest.mark.parametrize("job", ["experiment", "replay", "autoresearch", "world", "rebalance"])
def test_launch_while_trading_is_halted_is_refused(store, job):
    switch = FileKillSwitch(store.home)
    switch.write(Halt(by="ann", reason="a drill", at=datetime.now(UTC)))
    with pytest.raises(RunHalted):
        launch(store, job)
    with pytest.raises(RunHalted):
        run_now(store, "weekly_retrain")
    switch.path.unlink()
    assert status_of(RunHalted()) == 409


def test_run_now_of_an_unknown_schedule_is_refused(store):
    with pytest.raises(ValueError):
        run_now(store, "weekly")


def test_schedules_that_can_be_run_now_are_all_with_their_jobs():
    assert {schedule.name: schedule.job_name for schedule in SCHEDULES} == SCHEDULED_JOBS
    assert list(SCHEDULED_JOBS)[:3] == ["nightly_preference_extract", "dpo_check", "weekly_retrain"]


@pytest.mark.slow
def test_schedule_of_several_experiments_requests_a_run_of_each(searched, monkeypatch):
    keys = ["one@00000000", "two@00000000"]
    with open_instance(searched) as instance:
        monkeypatch.setattr(schedules, "current_experiments", lambda *_: keys)
        requested = launching._requested(searched, instance, {"schedule": "weekly_retrain"})
        monkeypatch.setattr(schedules, "current_experiments", lambda *_: [])
        with pytest.raises(ValueError):
            launching._requested(searched, instance, {"schedule": "weekly_retrain"})
    assert [(job, tags[launching.PARTITION]) for job, _, tags, _ in requested] == [("experiment", key) for key in keys]
    assert {tags[RUN_NOW] for _, _, tags, _ in requested} == {"weekly_retrain"}


@pytest.mark.slow
def test_runs_of_a_schedule_without_a_ui_follow_each_other(tmp_path):
    store = Store(small_home(tmp_path / "home"))
    requests = [("upkeep", {}, {"nvtrader/turn": str(turn)}, ()) for turn in (1, 2)]
    script = RUN_REQUESTS.format(requests=requests)
    command = [sys.executable, "-c", script, str(store.home.root)]
    run_ids = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    runs = JobRuns(store)
    last = until(lambda: next((run for run in runs.recent(5) if run.run_id == run_ids[1] and run.ended_at), None))
    first = runs.run(run_ids[0])
    assert [first.tags["nvtrader/turn"], last.tags["nvtrader/turn"]] == ["1", "2"]
    assert first.ended_at <= last.started_at


@pytest.mark.slow
def test_run_that_a_signal_ends_is_the_last_and_one_that_succeeds_is_not(store, instance, monkeypatch):
    monkeypatch.setattr("nvtrader_pipelines.storage.views.publishing.publish", lambda _: None)
    jobs = nothing_job, ending_job
    assert [launching._execute(store, instance, str(uuid4()), job, {}, {}) for job in jobs] == [True, False]


@pytest.mark.slow
def test_job_runs_without_a_ui_are_read_and_schedules_are_off(store):
    tags, success = {"nvtrader/layer": "market", ".hidden": "yes"}, dg.DagsterRunStatus.SUCCESS
    with open_instance(store) as instance:
        first, last = (instance.create_run_for_job(nothing_job, tags=tags, status=success).run_id for _ in range(2))
    runs = JobRuns(store)
    assert [run.run_id for run in runs.recent(1)] == [last]
    assert [run.run_id for run in runs.recent(5)] == [last, first]
    assert runs.run(last).tags == {"nvtrader/layer": "market"}
    states = {state.schedule: state for state in runs.schedules()}
    assert list(states) == list(SCHEDULED_JOBS)
    assert not any(state.is_on or state.next_at or state.last_tick for state in states.values())
    assert {state.last_run for state in states.values()} == {None}  # others launched the runs of the job
    for refused in (last, "unknown"):
        with pytest.raises(ValueError):
            runs.terminate(refused)
    runs.close()


@pytest.mark.slow
def test_last_run_of_a_schedule_is_its_own_or_by_hand(store):
    tags = {
        "sensor": {"dagster/sensor_name": "landed_file"},
        "scheduled": {"dagster/schedule_name": "eod_ingest"},
        "by_hand": {RUN_NOW: "eod_ingest"},
    }
    runs, own = JobRuns(store), None
    with open_instance(store) as instance:
        for name in ("sensor", "scheduled", "by_hand", "sensor", "scheduled", "sensor"):
            run_id = instance.create_run_for_job(nothing_job, tags=tags[name]).run_id
            own = own if name == "sensor" else (run_id, name == "by_hand")
            last = {state.schedule: state.last_run for state in runs.schedules()}
            assert (last["eod_ingest"] and (last["eod_ingest"].run_id, last["eod_ingest"].is_by_hand)) == own
            assert last["eod_rebalance"] is None
    runs.close()


@pytest.mark.slow
def test_detached_run_outlives_the_launching_process_and_is_seen(store):
    with subprocess.Popen(
        [sys.executable, "-c", LAUNCH_AND_WAIT, str(store.home.root)], stdout=subprocess.PIPE, text=True
    ) as parent:
        run_id = parent.stdout.readline().strip()
        parent.kill()
    runs = JobRuns(store)
    run = ended(runs, run_id)
    assert (run.job, run.status) == ("upkeep", "SUCCESS")
    assert run.created_at <= run.started_at <= run.ended_at
    assert run.tags.items() >= {"nvtrader/layer": "storage", "nvtrader/by": "ann"}.items()
    assert PROCESS_TAG in run.tags
    runs.close()


@pytest.mark.slow
def test_terminate_of_a_detached_run_cancels_it_and_ends_its_process(tmp_path):
    store = Store(small_home(tmp_path / "home"))
    with file_lock(lock_path(store.home, "ingest")):  # so that the run waits, however slow this process is
        run_id = launch(store, "market", tags=whole_history_tags())
        runs = JobRuns(store)
        run = until(lambda: run if (run := runs.run(run_id)).started_at else None)
        runs.terminate(run_id)
        assert ended(runs, run_id).status == "CANCELED"
    pid = int(run.tags[PROCESS_TAG].partition("@")[0])
    until(lambda: not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
    runs.close()


@pytest.mark.nightly
@pytest.mark.slow
def test_terminate_of_a_detached_search_ends_it_after_its_trials(tmp_path):
    store = Store(search_home(tmp_path / "home", market()))
    run_id = launch(store, "autoresearch", config=search_config(budget=500, workers=1))
    runs = JobRuns(store)
    (folder,) = until(lambda: [folder for folder in store.searches.folders() if folder.read_lines()])
    runs.terminate(run_id)
    assert ended(runs, run_id).status == "SUCCESS"
    assert not is_closed(read_session(folder).lines)
    runs.close()


@pytest.mark.nightly
@pytest.mark.slow
def test_launch_in_a_ui_is_queued_with_tags_and_terminated(tmp_path):
    home, port = small_home(tmp_path / "home"), free_port()
    (home.landing / "prices.csv").unlink()  # nothing for a sensor to run
    store = Store(home)

    def launched():
        with suppress(StorageError):  # until the daemon is healthy
            return launch(store, "upkeep", tags={"nvtrader/by": "ann"})

    with serving(home, port):
        run_id = until(launched)
        runs = JobRuns(store)
        assert runs.run(run_id).tags == {"nvtrader/layer": "storage", "nvtrader/by": "ann"}
        terminated = launch(store, "promotion")
        runs.terminate(terminated)
        assert ended(runs, terminated).status == "CANCELED"
        assert ended(runs, run_id).status == "SUCCESS"
        for job, options in {"market": {"partition": "1912"}, "experiment": {"partition": KEY}, "markets": {}}.items():
            with pytest.raises(ValueError):
                launch(store, job, **options)
        with pytest.raises(ValueError):
            launch(store, "autoresearch", config=search_config(budget="many"))
        (scheduled,) = run_now(store, "weekly_upkeep")
        assert runs.run(scheduled).tags == {"nvtrader/layer": "storage", RUN_NOW: "weekly_upkeep"}
        with pytest.raises(ValueError, match="dpo could tune"):
            run_now(store, "dpo_check")
        with pytest.raises(ValueError, match="no panel"):
            run_now(store, "weekly_autoresearch")
        (ingest,) = [state for state in runs.schedules() if state.schedule == "eod_ingest"]
        assert ingest.is_on
        assert f"{ingest.next_at.astimezone(ZoneInfo('America/New_York')):%H:%M}" == "17:30"
        runs.close()
