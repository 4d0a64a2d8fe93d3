"""Contract of an executor of calls."""

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from nvtrader_pipelines.components.executor import Executor, ProcessExecutor, WorkerEndedError, send
from nvtrader_pipelines.components.executor_choice import EXECUTOR, make_executor
from nvtrader_pipelines.storage.errors import DamagedFileError
from tests.forkserver import workers

pytestmark = pytest.mark.slow

SECONDS = 60.0
LARGE = 50_000_000  # bytes
ENDLESS = """
import os, time
from nvtrader_pipelines.components.executor import ProcessExecutor
print("script runs", flush=True)
with ProcessExecutor(2) as executor:
    executor.submit(time.sleep, 3600)
    executor.submit(os.getpid)
    executor.receive(60)
    print("called", flush=True)
    while True:
        executor.receive(0.5)
"""


@pytest.fixture(params=["processes", pytest.param("ray", marks=pytest.mark.nightly)])
def start(request, monkeypatch):
    if request.param == "ray":
        pytest.importorskip("ray")
    monkeypatch.setenv(EXECUTOR, request.param)
    return make_executor


def receive(executor: Executor):
    return executor.receive(SECONDS) or pytest.fail("nothing arrives")


def end_of(executor: Executor, call):
    """Result of a call, after the messages and ends of others."""
    while receive(executor) != (call, None):
        pass
    return call.result()


def call(executor: Executor, function, *arguments):
    return end_of(executor, executor.submit(function, *arguments))


def count(number, steps, shared):
    for step in range(steps):
        send(step)
    return shared + number


def large_after_pid():
    send(os.getpid())
    return bytes(LARGE)


def say_pid_and_sleep(seconds):
    send(os.getpid())
    time.sleep(seconds)
    return seconds


def ignored(signals):
    return [signal.getsignal(each) == signal.SIG_IGN for each in signals]


def touch_later(path):
    time.sleep(0.3)
    path.touch()


def test_calls_get_the_shared_values_and_their_messages_arrive_in_order(start):
    with start(2, (), 100) as executor:
        calls = [executor.submit(count, number, 50) for number in range(5)]
        received = [receive(executor) for _ in range(5 * 51)]
    for number, counting in enumerate(calls):
        assert [message for of, message in received if of is counting] == [*range(50), None]
        assert counting.result() == 100 + number


def test_receive_in_vain_returns_none(start):
    with start(1) as executor:
        assert executor.receive(0.1) is None


def test_error_of_a_call_reaches_the_caller_and_its_worker_stays(start):
    with start(1) as executor:
        pid = call(executor, os.getpid)
        with pytest.raises(ZeroDivisionError) as raised:
            call(executor, divmod, 1, 0)
        assert len(raised.value.__notes__) == 1  # the traceback of the worker
        assert call(executor, os.getpid) == pid


def raise_with_three_arguments():
    raise DamagedFileError(Path("a"), "is cut", "restore it")


def raise_with_a_function():
    raise ValueError(lambda: 0)


def return_a_function():
    return lambda: 0


@pytest.mark.parametrize("function", [raise_with_three_arguments, raise_with_a_function, return_a_function])
def test_what_cannot_be_pickled_is_an_error_with_its_traceback(start, function):
    with start(1) as executor:
        with pytest.raises((AttributeError, RuntimeError)) as failure:
            call(executor, function)
        assert not isinstance(failure.value, WorkerEndedError)
        assert function.__name__ in f"{failure.value} {getattr(failure.value, '__notes__', '')}"
        assert call(executor, os.getpid)


def test_error_that_nobody_takes_is_printed(start, capfd):
    with start(1) as executor:
        executor.submit(divmod, 1, 0)
    assert "ZeroDivisionError" in capfd.readouterr().err


def test_interrupt_while_calls_are_awaited_ends_the_workers(monkeypatch):
    def interrupt(timeout):
        raise KeyboardInterrupt

    def leave():
        with ProcessExecutor(1) as executor:
            executor.submit(time.sleep, 3600.0)
            monkeypatch.setattr(executor, "receive", interrupt)

    before = workers()
    with pytest.raises(KeyboardInterrupt):
        leave()
    assert workers() <= before


def test_killed_worker_fails_its_call_only_and_is_replaced():
    with ProcessExecutor(2) as executor:
        longer = executor.submit(say_pid_and_sleep, 3.0)
        receive(executor)
        killed = executor.submit(say_pid_and_sleep, 3600.0)
        _, pid = receive(executor)
        psutil.Process(pid).kill()
        assert receive(executor) == (killed, None)
        with pytest.raises(WorkerEndedError):
            killed.result()
        assert call(executor, abs, -1) == 1
        assert end_of(executor, longer) == 3.0


def test_worker_killed_while_it_sends_its_result_fails_its_call_only():
    with ProcessExecutor(2) as executor:
        killed = executor.submit(large_after_pid)
        _, pid = receive(executor)
        other = executor.submit(large_after_pid)
        time.sleep(0.5)  # it has sent as much as a pipe holds
        psutil.Process(pid).kill()
        assert receive(executor) == (killed, None)
        with pytest.raises(WorkerEndedError):
            killed.result()
        assert len(end_of(executor, other)) == LARGE
        assert call(executor, abs, -1) == 1


def test_killed_idle_worker_is_replaced(start):
    with start(1) as executor:
        worker = psutil.Process(call(executor, os.getpid))
        worker.kill()
        psutil.wait_procs([worker])
        assert call(executor, abs, -1) == 1


def test_worker_ignores_interrupts(start):
    with start(1) as executor:
        assert call(executor, ignored, [signal.SIGINT]) == [True]


def test_context_awaits_its_calls(tmp_path):
    before = workers()
    with ProcessExecutor(2) as executor:
        for name in "abc":
            executor.submit(touch_later, tmp_path / name)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b", "c"]
    assert workers() <= before


def test_error_in_the_context_ends_the_workers_at_once():
    def interrupt():
        with ProcessExecutor(2) as executor:
            for _ in range(3):
                executor.submit(say_pid_and_sleep, 3600.0)
            receive(executor)
            raise KeyboardInterrupt

    before, began = workers(), time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        interrupt()
    assert workers() <= before
    assert time.monotonic() - began < SECONDS
    assert multiprocessing.active_children() == []


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGKILL], ids=["interrupted", "killed"])
@pytest.mark.usefixtures("interruptible")
def test_no_worker_outlives_a_script_that_is(sent, tmp_path):
    script = tmp_path / "script.py"  # without guard: it runs once
    script.write_text(ENDLESS)
    process = subprocess.Popen(
        [sys.executable, str(script)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        start_new_session=True,
    )
    try:
        assert [process.stdout.readline() for _ in range(2)] == ["script runs\n", "called\n"]
        started = psutil.Process(process.pid).children(recursive=True)
        assert len(started) >= 3  # the fork server and the workers
        (os.killpg if sent == signal.SIGINT else os.kill)(process.pid, sent)  # a terminal interrupts the group
        output, errors = process.communicate(timeout=SECONDS)  # ends when the last of them has
        _, alive = psutil.wait_procs(started, timeout=SECONDS)
        assert alive == []
        assert (output, errors.count("Traceback")) == ("", 1 if sent == signal.SIGINT else 0)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
