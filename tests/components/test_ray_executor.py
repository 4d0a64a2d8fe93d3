"""Executor on a Ray that the tests start; what every executor does is in `test_executor`."""

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from nvtrader_pipelines.components.executor import WorkerEndedError, send
from nvtrader_pipelines.components.executor_choice import EXECUTOR
from nvtrader_pipelines.components.ray_executor import LOCAL, RayExecutor
from nvtrader_pipelines.policies.training import train_all
from tests.components.test_executor import ENDLESS, LARGE, SECONDS, call, receive, say_pid_and_sleep
from tests.policies.small_learners import RESIDUAL_AGENT, RESIDUAL_SPEC
from tests.policies.test_training import PANEL, SLICED, assert_same, fits, task_of

pytest.importorskip("ray")
pytestmark = pytest.mark.nightly

N_STEPS = 5


class Unpickled:
    """Value that leaves a file in a folder whenever it is unpickled."""

    def __init__(self, folder):
        self.folder = folder

    def __setstate__(self, state):
        self.__dict__.update(state)
        self.folder.joinpath(f"{os.getpid()}-{time.monotonic_ns()}").touch()


def pid_of_worker(_):
    time.sleep(0.1)
    return os.getpid()


def count_but_die(folder, n_deaths):
    """Send the steps; in the first runs, die in the middle."""
    for step in range(N_STEPS):
        send(step)
        if step == N_STEPS // 2 and (n_before := len([*folder.iterdir()])) < n_deaths:
            folder.joinpath(str(n_before)).touch()
            os.kill(os.getpid(), signal.SIGKILL)
    return N_STEPS


def large(n_bytes):
    send(b"x" * n_bytes)
    return bytes(n_bytes)


def messages_of(executor, own):
    """Messages of a call until it has ended, while others run."""
    received = []
    while (own, None) not in received:
        received.append(receive(executor))
    return [message for call, message in received if call is own][:-1]


def test_call_of_a_killed_worker_runs_again_and_its_messages_arrive_once(tmp_path):
    with RayExecutor(LOCAL, 1) as executor:
        own = executor.submit(count_but_die, tmp_path, 1)
        assert messages_of(executor, own) == [*range(N_STEPS)]
        assert own.result() == N_STEPS
        assert len([*tmp_path.iterdir()]) == 1


def test_call_whose_worker_is_killed_twice_fails_alone(tmp_path):
    with RayExecutor(LOCAL, 2) as executor:
        longer = executor.submit(time.sleep, 3.0)
        own = executor.submit(count_but_die, tmp_path, 9)
        messages = messages_of(executor, own)
        assert messages == [*range(len(messages))]
        with pytest.raises(WorkerEndedError):
            own.result()
        assert len([*tmp_path.iterdir()]) == 2
        assert call(executor, abs, -1) == 1
    assert longer.result() is None


def test_large_message_and_result_arrive():
    with RayExecutor(LOCAL, 1) as executor:
        own = executor.submit(large, LARGE)
        assert [len(message) for message in messages_of(executor, own)] == [LARGE]
        assert len(own.result()) == LARGE


def test_end_kills_workers_within_their_calls():
    executor = RayExecutor(LOCAL, 2)
    for _ in range(3):
        executor.submit(say_pid_and_sleep, 3600.0)
    running = [psutil.Process(receive(executor)[1]) for _ in range(2)]
    executor.end()
    _, alive = psutil.wait_procs(running, timeout=SECONDS)
    assert alive == []


def test_workers_fetch_shared_values_once(tmp_path):
    with RayExecutor(LOCAL, 2, Unpickled(tmp_path)) as executor:
        calls = [executor.submit(pid_of_worker) for _ in range(8)]
    pids = {str(each.result()) for each in calls}
    fetched = sorted(path.name.partition("-")[0] for path in tmp_path.iterdir())
    assert fetched == sorted(set(fetched))
    assert pids <= set(fetched)


def test_workers_that_the_machine_has_no_room_for_hold_no_call():
    with RayExecutor(LOCAL, (os.cpu_count() or 1) + 3) as executor:
        calls = [executor.submit(abs, -number) for number in range(12)]
    assert [each.result() for each in calls] == [*range(12)]


def test_trainings_on_ray_equal_those_in_processes(monkeypatch):
    tasks = [task_of(0, SLICED), task_of(1, sample_rate=1.0), task_of(2), task_of(3, RESIDUAL_AGENT, RESIDUAL_SPEC)]
    in_processes = fits(train_all(PANEL, tasks, n_processes=2))
    monkeypatch.setenv(EXECUTOR, "ray")
    on_ray = fits(train_all(PANEL, tasks))
    for task in tasks:
        assert_same(on_ray[task], in_processes[task])


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGKILL], ids=["interrupted", "killed"])
@pytest.mark.usefixtures("interruptible")
def test_no_process_of_ray_outlives_a_script_that_is(sent, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        ENDLESS.replace("ProcessExecutor(2)", "RayExecutor('local', 2)").replace(
            "executor import ProcessExecutor", "ray_executor import RayExecutor"
        )
    )
    process = subprocess.Popen(
        [sys.executable, str(script)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        start_new_session=True,
    )
    try:
        assert [process.stdout.readline() for _ in range(2)] == ["script runs\n", "called\n"]
        started = psutil.Process(process.pid).children(recursive=True)
        (os.killpg if sent == signal.SIGINT else os.kill)(process.pid, sent)  # a terminal interrupts the group
        process.communicate(timeout=SECONDS)
        _, alive = psutil.wait_procs(started, timeout=2 * SECONDS)  # agents of Ray wait a minute for it
        assert alive == []
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
