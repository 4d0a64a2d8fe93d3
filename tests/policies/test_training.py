import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from nvtrader_pipelines.policies.training import TrainingTask, train_all
from tests.markets import synthetic_panel
from tests.policies.small import AGENT, RESIDUAL_AGENT, RESIDUAL_SPEC, SPEC, WINDOW, endless

PANEL = synthetic_panel(160, 3)
LONG = endless(AGENT)
ENDLESS = """
from nvtrader_pipelines.policies.training import TrainingTask, train_all
from tests.markets import synthetic_panel
from tests.policies.small import AGENT, SPEC, WINDOW, endless
if __name__ == "__main__":
    tasks = [TrainingTask(0, seed, WINDOW, SPEC, endless(AGENT) if seed else AGENT) for seed in range(5)]
    for task, _ in train_all(synthetic_panel(160, 3), tasks, 2):
        print("trained", task.seed, flush=True)
"""


def task_of(seed, agent=AGENT, spec=SPEC):
    return TrainingTask(fold=0, seed=seed, window=WINDOW, environment=spec, agent=agent)


def descendants():
    return {child for child in psutil.Process().children(recursive=True) if child.status() != psutil.STATUS_ZOMBIE}


def wait_until(condition, seconds=20.0):
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.05)
    return condition()


def test_training_in_processes_gives_the_same_bytes_as_in_this_one():
    tasks = [task_of(0), task_of(1), task_of(2, RESIDUAL_AGENT, RESIDUAL_SPEC)]
    found = dict(train_all(PANEL, tasks, n_processes=2))
    assert set(found) == set(tasks)
    for task in tasks:
        own = task.agent.train(PANEL, task.environment, task.window, task.seed)
        assert found[task].scaler == own.scaler
        assert found[task].curve == own.curve
        for name, tensor in own.tensors.items():
            assert found[task].tensors[name].numpy().tobytes() == tensor.numpy().tobytes()


def test_nothing_to_train_starts_nothing():
    before = descendants()
    assert list(train_all(PANEL, [])) == []
    assert descendants() <= before


def test_stopping_early_ends_the_workers_at_once():
    list(train_all(PANEL, [task_of(0)], 1))  # the fork server, which stays, is running
    before = descendants()
    results = train_all(PANEL, [task_of(0), *(task_of(seed, LONG) for seed in range(1, 5))], 2)
    next(results)
    assert len(descendants() - before) == 2
    started = time.monotonic()
    results.close()
    assert time.monotonic() - started < 5.0
    assert wait_until(lambda: descendants() <= before)


def test_a_training_that_fails_raises_its_error_and_ends_the_workers_at_once():
    list(train_all(PANEL, [task_of(0)], 1))
    before = descendants()
    broken = TrainingTask(0, 0, (150, 151), SPEC, AGENT)
    with pytest.raises(ValueError, match="an episode needs 5 sessions"):
        list(train_all(PANEL, [broken, *(task_of(seed, LONG) for seed in range(1, 5))], 2))
    assert wait_until(lambda: descendants() <= before)


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGKILL], ids=["interrupted", "killed"])
def test_no_worker_outlives_a_process_that_is(sent, tmp_path):
    script = tmp_path / "endless.py"
    script.write_text(ENDLESS)
    root = Path(__file__).parents[2]
    process = subprocess.Popen(
        [sys.executable, str(script)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(root)},
        start_new_session=True,
    )
    try:
        assert process.stdout.readline() == "trained 0\n"
        started = psutil.Process(process.pid).children(recursive=True)
        assert len(started) >= 3  # the fork server and the workers
        if sent == signal.SIGINT:
            os.killpg(process.pid, sent)  # as a terminal does
        else:
            process.send_signal(sent)
        _, said = process.communicate(timeout=30)  # ends when the last of them is gone
        _, alive = psutil.wait_procs(started, timeout=10)
        assert alive == []
        assert said.count("Traceback") <= (1 if sent == signal.SIGINT else 0)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
