"""Servers of a UI and the processes that start them: whichever is killed, none is left behind."""

import json
import os
import random
import signal
import subprocess
import sys
import time

import pytest

from nvtrader_pipelines.orchestration import ui_processes
from nvtrader_pipelines.orchestration.ui_processes import BAD_INPUT, STARTER, stop_servers
from nvtrader_pipelines.storage.code_server import running_session, running_url
from tests.homes import session_processes, small_home
from tests.kill_drill import drill_servers
from tests.orchestration.test_ui import free_port

LIMIT_SECONDS = 5.0
N_PROCESSES = 3  # two servers and the leader of their session


def until(condition):
    """Wait for a condition that must hold within seconds."""
    end = time.monotonic() + 6 * LIMIT_SECONDS
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def command(folder):
    sleepers = json.dumps([["sleep", "600"]] * (N_PROCESSES - 1))
    return [sys.executable, "-m", ui_processes.__name__, str(folder), str(free_port()), "", sleepers, ""]


def require_ended(folder, session, seconds=LIMIT_SECONDS):
    end = time.monotonic() + seconds
    while session_processes(session) and time.monotonic() < end:
        time.sleep(0.02)
    assert session_processes(session) == []
    assert running_url(folder) == ""


@pytest.fixture
def started(tmp_path):
    """Process that keeps two servers, and their session."""
    with subprocess.Popen(command(tmp_path), start_new_session=True) as process:
        until(lambda: len(session_processes(running_session(tmp_path)[1])) == N_PROCESSES)
        session = running_session(tmp_path)[1]
        yield process, session
        for left in (process, *session_processes(session)):
            left.kill()


@pytest.mark.parametrize(
    "number",
    [
        signal.SIGKILL,
        signal.SIGTERM,
        *(pytest.param(number, marks=pytest.mark.nightly) for number in (signal.SIGHUP, signal.SIGINT)),
    ],
)
@pytest.mark.slow
def test_servers_end_with_the_process_that_keeps_them(started, tmp_path, number):
    process, session = started
    os.killpg(process.pid, number)
    require_ended(tmp_path, session)
    assert process.wait(LIMIT_SECONDS) == (0 if number in {signal.SIGTERM, signal.SIGINT} else -number)


@pytest.mark.slow
def test_servers_end_with_the_leader_of_their_session(started, tmp_path):
    process, session = started
    os.kill(session, signal.SIGKILL)
    require_ended(tmp_path, session)
    assert process.wait(LIMIT_SECONDS) != 0


@pytest.mark.slow
def test_servers_end_with_the_service_beside_them(tmp_path):
    script = f'export {STARTER}=$$; "$@" & wait'
    with subprocess.Popen(["bash", "-c", script, "bash", *command(tmp_path)], start_new_session=True) as service:
        until(lambda: len(session_processes(running_session(tmp_path)[1])) == N_PROCESSES)
        session = running_session(tmp_path)[1]
        service.kill()
    require_ended(tmp_path, session)
    assert session_processes(service.pid) == []


@pytest.mark.slow
def test_orphaned_servers_hold_the_lock_until_they_are_stopped(started, tmp_path):
    process, session = started
    os.kill(session, signal.SIGSTOP)
    process.kill()
    os.kill(session, signal.SIGKILL)
    until(lambda: len(session_processes(session)) == N_PROCESSES - 1)
    second = subprocess.run(command(tmp_path), capture_output=True, text=True, check=False)
    url = running_url(tmp_path)
    assert (second.returncode, url in second.stderr) == (BAD_INPUT, True)
    assert stop_servers(tmp_path) == url != ""
    require_ended(tmp_path, session)
    assert stop_servers(tmp_path) == ""


def test_stop_servers_leaves_a_session_that_does_not_hold_the_lock(started, tmp_path):
    lock = tmp_path / ui_processes.LOCK
    with subprocess.Popen(["sleep", "600"], start_new_session=True) as stranger:
        lock.write_text(f"{running_url(tmp_path)}\n{stranger.pid}")
        with pytest.raises(ValueError):
            stop_servers(tmp_path)
        assert stranger.poll() is None
        stranger.kill()


@pytest.mark.nightly
@pytest.mark.slow
def test_killed_ui_and_closed_terminal_leave_nothing_behind(tmp_path):
    home = small_home(tmp_path / "home")
    (home.landing / "prices.csv").unlink()  # nothing for a sensor to run
    lines = list(drill_servers(home, 2, random.Random(0)))
    assert [line for line in lines if not line.endswith("nothing is left")] == []
